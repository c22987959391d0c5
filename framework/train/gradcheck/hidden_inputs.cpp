#include <xtape/framework/train/gradcheck/hidden_inputs.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include <xtape/framework/train/gradcheck/checked.hpp>

namespace xtape::detail {
namespace {

constexpr double moved_by = 1e-3;   // in sizes of the elements that are moved
constexpr double most_moved = 4e9;  // that may be moved

/// A memory that is moved, and moved back at the end.
class MovedNumbers {
 public:
  MovedNumbers(double* x, std::size_t n, double t) : x_(x), before_(x, x + n) {
    for (std::size_t i = 0; i < n; ++i) x[i] += t * (x[i] == 0 || !std::isfinite(x[i]) ? 1 : std::abs(x[i]));
  }
  MovedNumbers(MovedNumbers&& other) noexcept
      : x_(std::exchange(other.x_, nullptr)), before_(std::move(other.before_)) {}
  MovedNumbers& operator=(MovedNumbers&&) = delete;
  ~MovedNumbers() {
    if (x_ != nullptr) std::copy(before_.begin(), before_.end(), x_);
  }

 private:
  double* x_;
  std::vector<double> before_;
};

/// From values at t = -moved_by, 0 and moved_by.
CheckedElement evidence(double low, double middle, double high, double magnitude, Shape place = {}) {
  return {.place = place,
          .numeric = (high - low) / (2 * moved_by),
          .step = moved_by,
          .bar = (std::abs(high - middle + (low - middle)) + 8 * std::numeric_limits<double>::epsilon() * magnitude) /
                 (2 * moved_by)};
}

/// A memory that ops might read: on the record, or a listed parameter.
struct Candidate {
  Var<double> x;
  std::size_t place, parameter;
  double* data;  // of a parameter
  std::size_t size;
};
constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();

std::vector<Candidate> candidates_of(Record& record, const ParameterList<double>& parameters) {
  std::vector<Candidate> result;
  std::set<const double*> seen;
  Tape<double>& tape = record.tape;
  for (std::size_t place = 0; place < tape.size(); ++place) {
    const Var<double> x = tape.at(place);
    if (x.requires_grad() && x.size() > 0 && seen.insert(x.data()).second)
      result.push_back({x, place, nowhere, nullptr, x.size()});
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter<double>& p = parameters[i].parameter;
    if (!p.frozen() && p.size() > 0 && seen.insert(p.data()).second)
      result.push_back({{}, nowhere, i, const_cast<double*>(p.data()), p.size()});
  }
  return result;
}

/// Runs in which some candidates are moved while an op is open, except the op's inputs.
class HiddenReplay : TapeObserver<double> {
 public:
  HiddenReplay(const Given& given, Record& record) : given_(given), record_(record) { tape_.observe(*this); }

  struct Seen {
    bool changed = false;
    double change = 0;  // of a projection
  };
  /// What each op of the record made of it.
  std::vector<Seen> run(std::span<const Candidate> candidates, double t) {
    candidates_ = candidates;
    t_ = t;
    opened_ = next_ = 0;
    seen_.assign(record_.ops.size(), {});
    try {
      given_.run(tape_);
    } catch (const std::exception&) {  // an op refused what it was given
    }
    moved_.clear();
    moving_.reset();
    return seen_;
  }

 private:
  void opened(Var<double> y) override {
    const std::size_t here = opened_++;
    if (next_ == record_.ops.size() || record_.ops[next_].opened != here || moving_) return;
    moving_ = y;
    const auto inputs = tape_.inputs(y);
    for (const Candidate& c : candidates_) {
      if (c.place != nowhere && c.place >= tape_.place(y)) continue;
      double* data = c.place == nowhere ? c.data : tape_.at(c.place).data();
      const auto is_it = [&](Var<double> input) { return input.data() == data; };
      if (std::none_of(inputs.begin(), inputs.end(), is_it)) moved_.emplace_back(data, c.size, t_);
    }
  }
  void closed(Var<double> first) override {
    if (!moving_ || tape_.place(first) != tape_.place(*moving_)) return;
    moved_.clear();
    moving_.reset();
    const RecordedOp& op = record_.ops[next_];
    Seen& seen = seen_[next_++];
    std::vector<Var<double>> outputs;
    for (const Var<double> y : tape_.outputs(first))
      if (y.requires_grad()) outputs.push_back(y);
    if (outputs.size() != op.outputs.size()) return;
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (outputs[k].shape() != op.outputs[k].shape()) return;
    seen.change = record_.project(op, outputs)[0].value;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const double* recorded = op.outputs[k].data();
      const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
      seen.changed |= !std::equal(recorded, recorded + outputs[k].size(), outputs[k].data(), same);
      std::copy_n(recorded, outputs[k].size(), outputs[k].data());
    }
  }

  Given given_;
  Record& record_;
  Tape<double> tape_;
  std::span<const Candidate> candidates_;
  double t_ = 0;
  std::size_t opened_ = 0, next_ = 0;
  std::optional<Var<double>> moving_;  // the output that is open
  std::vector<MovedNumbers> moved_;
  std::vector<Seen> seen_;
};

}  // namespace

std::vector<HiddenInput> find_hidden_inputs(const Given& given, Record& record,
                                            const ParameterList<double>& parameters) {
  if (record.numbers() * static_cast<double>(record.ops.size()) > most_moved) return {};
  const auto candidates = candidates_of(record, parameters);
  HiddenReplay replay(given, record);
  const auto all = replay.run(candidates, moved_by);
  const auto changed = [](const HiddenReplay::Seen& seen) { return seen.changed; };
  std::vector<HiddenInput> found;
  if (std::none_of(all.begin(), all.end(), changed)) return found;
  for (const Candidate& c : candidates) {
    const auto high = replay.run({&c, 1}, moved_by);
    if (std::none_of(high.begin(), high.end(), changed)) continue;
    const auto low = replay.run({&c, 1}, -moved_by);
    for (std::size_t k = 0; k < high.size(); ++k) {
      if (!high[k].changed) continue;
      const RecordedOp& op = record.ops[k];
      found.push_back({&op, c.x, c.parameter, evidence(low[k].change, 0, high[k].change, op.magnitude[0])});
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.op->opened < b.op->opened; });
  return found;
}

std::vector<OutsideValue> find_outside_values(const Given& given, Record& record,
                                              const ParameterList<double>& parameters) {
  const auto candidates = candidates_of(record, parameters);
  /// Runs with all inputs and parameters moved.
  const auto run = [&](Tape<double>& tape, double t) {
    std::vector<std::vector<double>> values = given.values;
    std::vector<MovedNumbers> moved;
    for (const Candidate& c : candidates)
      if (c.place == nowhere || c.x.op() == std::string_view("parameter"))
        moved.emplace_back(c.place == nowhere ? c.data : c.x.data(), c.size, t);
    std::vector<MovedNumbers> inputs;
    for (auto& x : values) inputs.emplace_back(x.data(), x.size(), t);
    Given{given.f, given.shapes, values}.run(tape);
  };
  Tape<double> low, high;
  try {
    run(low, -moved_by), run(high, moved_by);
  } catch (const std::exception&) {
    return {};
  }
  std::vector<OutsideValue> found;
  std::optional<Var<double>> after;
  const std::size_t places = std::min({record.tape.size(), low.size(), high.size()});
  for (std::size_t place = record.inputs.size(); place < places; ++place) {
    const Var<double> x = record.tape.at(place), a = low.at(place), b = high.at(place);
    if (!record.tape.inputs(x).empty()) after = x;
    if (!record.tape.inputs(x).empty() || x.op() == std::string_view("parameter") || x.data() == nullptr) continue;
    if (a.shape() != x.shape() || b.shape() != x.shape()) break;  // another function
    const auto change = [&](std::size_t i) { return std::abs(b.data()[i] - a.data()[i]); };
    std::size_t most = 0;
    for (std::size_t i = 1; i < x.size(); ++i)
      if (change(i) > change(most)) most = i;
    if (x.size() == 0 || !(change(most) > 0)) continue;
    found.push_back({x, after,
                     evidence(a.data()[most], x.data()[most], b.data()[most], std::abs(x.data()[most]),
                              place_of(most, x.shape()))});
  }
  return found;
}

}  // namespace xtape::detail
