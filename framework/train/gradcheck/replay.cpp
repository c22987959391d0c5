#include <xtape/framework/train/gradcheck/replay.hpp>

#include <algorithm>
#include <cmath>

#include <xtape/framework/base/random.hpp>
#include <xtape/framework/tape/expr.hpp>
#include <xtape/framework/train/gradcheck/checked.hpp>
#include <xtape/framework/train/gradcheck/projected_change.hpp>

namespace xtape::detail {
namespace {

constexpr std::uint64_t weight_stream = 5 << 20, replay_direction_stream = 6 << 20;

/// False if a scope took it.
bool is_alive(const Tape<double>& tape, Var<double> x) {
  try {
    return tape.check(x, "gradcheck"), true;
  } catch (const TapeError&) {
    return false;
  }
}

bool any_in(const std::vector<Var<double>>& inputs, auto&& predicate) {
  return std::any_of(inputs.begin(), inputs.end(), predicate);
}

/// The memories that an op's backward is tried on. One that a constant of the op shares, as detach(x) does with x, is
/// left out: both would move.
std::vector<OpInput> memories(const std::vector<Var<double>>& inputs) {
  std::vector<OpInput> result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Var<double> x = inputs[i];
    const auto shares = [&](Var<double> other) { return other.data() == x.data(); };
    if (x.size() == 0 || any_in(inputs, [&](Var<double> z) { return shares(z) && !z.requires_grad(); })) continue;
    const auto known = std::find_if(result.begin(), result.end(), [&](const OpInput& z) { return shares(z.x); });
    if (known == result.end())
      result.push_back({x, {i}, {}});
    else
      known->arguments.push_back(i);
  }
  return result;
}

}  // namespace

std::vector<Var<double>> Given::run(Tape<double>& tape) const {
  tape.clear();
  tape.set_step(0);
  std::vector<Var<double>> inputs;
  for (std::size_t i = 0; i < values.size(); ++i)
    inputs.push_back(tape.input(adapt(values[i].data(), shapes[i]), true));
  f(tape, inputs);
  return inputs;
}

// ---- the record

Record::Record(const Given& given, std::uint64_t seed) {
  tape.observe(*this);
  inputs = given.run(tape);
  tape.unobserve(*this);
  std::size_t largest = 0;
  for (const Var<double> first : closed_) {
    if (!is_alive(tape, first)) continue;
    const std::size_t place = tape.place(first);
    const auto is_first = [&](Var<double> y) { return is_alive(tape, y) && tape.place(y) == place; };
    RecordedOp op{};
    op.opened = static_cast<std::size_t>(std::find_if(opened_.begin(), opened_.end(), is_first) - opened_.begin());
    std::size_t size = 0;
    for (const Var<double> y : tape.outputs(first))
      if (y.requires_grad()) op.outputs.push_back(y), size += y.size();
    op.inputs = memories(tape.inputs(first));
    op.input_count = tape.inputs(first).size();
    largest = std::max(largest, size);
    ops.push_back(std::move(op));
  }
  std::sort(ops.begin(), ops.end(), [](const RecordedOp& a, const RecordedOp& b) { return a.opened < b.opened; });
  for (std::size_t p = 0; p < projections; ++p) weights_[p] = normal_values(largest, seed, weight_stream + p);
  for (RecordedOp& op : ops)
    for (std::size_t p = 0; p < projections; ++p) {
      const double* w = weights(p);
      for (const Var<double> y : op.outputs)
        for (std::size_t k = 0, n = y.size(); k < n; ++k, ++w)
          if (std::isfinite(y.data()[k])) op.magnitude[p] += std::abs(y.data()[k] * *w);
    }
  for (std::size_t place = 0; place < tape.size(); ++place) numbers_ += static_cast<double>(tape.at(place).size());
}

Pair<Projected> Record::project(const RecordedOp& op, const std::vector<Var<double>>& outputs) const {
  Pair<Projected> result;
  for (std::size_t p = 0; p < projections; ++p) {
    ProjectedChange change;
    const double* w = weights(p);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const double *now = outputs[i].data(), *before = op.outputs[i].data();
      for (std::size_t k = 0, n = outputs[i].size(); k < n; ++k, ++w)
        if (std::isfinite(before[k])) change.add(now[k], before[k], *w);
    }
    result[p] = change.result();
  }
  return result;
}

// ---- further runs

Replay::Replay(const Given& given, const Record& record, std::uint64_t seed) : given_(given), record_(record) {
  std::size_t largest = 0;
  for (const RecordedOp& op : record.ops)
    for (const OpInput& input : op.inputs) {
      const double* x = input.x.data();
      const std::size_t n = input.x.size();
      typical_[&input] = root_mean_square({x, x + n});
      largest = std::max(largest, n);
    }
  for (std::size_t d = 0; d < directions; ++d) {
    Rng rng(seed, (replay_direction_stream + d) << 40);
    random_[d].resize(largest);
    // Away from 0, so that no element goes unseen, and not of one size, so that errors do not cancel.
    for (double& v : random_[d]) v = (rng.below(2) == 0 ? 1 : -1) * (0.5 + rng.uniform());
  }
  tape_.observe(*this);
}

double Replay::direction(const Probe& probe, std::size_t i) const {
  const OpInput& input = *probe.input;
  const bool alone = probe.end - probe.begin == 1;
  if (!alone && !std::isfinite(input.gradient[0][i] + input.gradient[1][i])) return 0;
  return random_[probe.direction][i] * surroundings(input.x.data()[i], typical_.at(&input));
}

void Replay::run(const std::vector<Probe*>& probes, double t) {
  struct Guard {  // parameters outlive the tape
    Replay& replay;
    ~Guard() { replay.put_back(); }
  } guard{*this};
  probes_ = probes;
  t_ = t;
  opened_ = next_ = 0;
  ++runs_;
  lone_runs_ += probes.size() == 1;
  try {
    given_.run(tape_);
  } catch (const Finished&) {
  } catch (const std::exception&) {  // an op refused what it was given
  }
}

void Replay::opened(Var<double> y) {
  const std::size_t here = opened_++;
  if (next_ == probes_.size() || probes_[next_]->op->opened != here || moved_ != nullptr) return;
  const Probe& probe = *probes_[next_];
  const auto inputs = tape_.inputs(y);
  const std::size_t argument = probe.input->arguments[0];
  if (argument >= inputs.size() || inputs[argument].shape() != probe.input->x.shape()) return;  // another function
  double* x = inputs[argument].data();
  moving_ = y;
  moved_ = x + probe.begin;
  unmoved_.assign(moved_, x + probe.end);
  // Of a parameter the record sees the same memory: an element's direction is asked for before it is moved.
  for (std::size_t i = probe.begin; i < probe.end; ++i) x[i] += t_ * direction(probe, i);
}

void Replay::closed(Var<double> first) {
  if (moved_ == nullptr || tape_.place(first) != tape_.place(moving_)) return;
  put_back();
  Probe& probe = *probes_[next_++];
  std::vector<Var<double>> outputs;
  for (const Var<double> y : tape_.outputs(first))
    if (y.requires_grad()) outputs.push_back(y);
  bool same = outputs.size() == probe.op->outputs.size();
  for (std::size_t k = 0; same && k < outputs.size(); ++k) same = outputs[k].shape() == probe.op->outputs[k].shape();
  if (!same) return;
  probe.known[t_] = record_.project(*probe.op, outputs);
  if (next_ == probes_.size()) throw Finished{};
  for (std::size_t k = 0; k < outputs.size(); ++k)
    std::copy_n(probe.op->outputs[k].data(), outputs[k].size(), outputs[k].data());
}

void Replay::put_back() {
  if (moved_ != nullptr) std::copy(unmoved_.begin(), unmoved_.end(), moved_);
  moved_ = nullptr;
}

void Replay::run_together(const std::vector<Probe*>& probes, const std::vector<double>& ts) {
  std::vector<std::vector<Probe*>> rounds;
  std::map<const RecordedOp*, std::size_t> used;
  for (Probe* probe : probes) {
    const std::size_t round = used[probe->op]++;
    if (round == rounds.size()) rounds.emplace_back();
    rounds[round].push_back(probe);
  }
  for (auto& round : rounds) {
    std::sort(round.begin(), round.end(), [](auto* a, auto* b) { return a->op->opened < b->op->opened; });
    for (const double t : ts) run(round, t);
  }
}

}  // namespace xtape::detail
