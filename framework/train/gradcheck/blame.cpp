#include <xtape/framework/train/gradcheck/blame.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include <xtape/framework/train/gradcheck/argument_names.hpp>
#include <xtape/framework/train/gradcheck/directions.hpp>
#include <xtape/framework/train/gradcheck/hidden_inputs.hpp>
#include <xtape/framework/train/gradcheck/own_backward.hpp>

namespace xtape::detail {
namespace {

constexpr double step = 1e-3;  // of the first differences, in sizes of the elements that are moved
constexpr std::size_t most_blamed = 16;
constexpr std::size_t most_one_by_one = 1000;  // elements of an input
constexpr std::size_t most_halvings = 32;      // of one input: enough for one wrong element and some kinks
/// Numbers that may be computed by runs for one op alone, and by all runs; a run costs no less than some 5000. Beyond
/// the first only differences that all ops share are taken, beyond the second none.
constexpr double most_numbers_alone = 1e9, most_numbers = 4e9;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// A probe with the difference that was found, of the projection that speaks more against the op.
struct Judged {
  Probe probe;
  Reason reason = Reason::ok;
  double ratio = 0;  // |analytic - numeric| in error bars
  double analytic = 0;
  Derivative numeric;
};

/// What speaks against an op; the first to be halved is the gravest, and of the grave ones the shortest.
double severity(Reason reason) { return reason == Reason::mismatch ? 2 : reason == Reason::ok ? 0 : 1; }
bool is_worse(const Judged& a, const Judged& b) {
  const auto rank = [](const Judged& j) {
    return std::array{severity(j.reason), -static_cast<double>(j.probe.end - j.probe.begin), j.ratio};
  };
  return rank(a) > rank(b);
}

/// Of its op among all, and of the argument.
std::pair<std::size_t, std::size_t> order_of(const Judged& judged) {
  return {judged.probe.op->opened, judged.probe.input->arguments[0]};
}

/// The search for wrong gradients in one function's record.
class BlameSearch {
 public:
  BlameSearch(const Given& given, std::uint64_t seed) : record_(given, seed), kept_(record_.tape) {
    for (RecordedOp& op : record_.ops)
      for (const Suspect& suspect : run_own_backward(record_, op, seed)) suspects_.push_back(suspect);
    replay_.emplace(given, record_, seed);
  }
  Record& record() { return record_; }
  const Record& record() const { return record_; }
  /// The element that speaks most against each input whose gradient is wrong, in the order of recording.
  std::vector<Judged> wrong_elements();
  /// That element as people read it.
  CheckedElement element(const Judged& judged) const;

 private:
  std::vector<Judged> confirmed_suspects();
  std::vector<Judged> found_along_directions(const std::vector<Judged>& without);
  std::vector<Judged> found_one_by_one(const std::vector<Judged>& undecided, const std::vector<Judged>& found);
  double numbers(std::size_t runs) const { return static_cast<double>(runs) * (record_.numbers() + 5000); }
  bool may_run_alone() const { return numbers(replay_->lone_runs()) < most_numbers_alone; }
  Line line(Probe& probe);
  Judged judge(Probe& probe);
  std::vector<Judged> judge_all(std::vector<Probe>& probes);

  Record record_;
  KeptParameterGradients kept_;
  std::optional<Replay> replay_;
  std::vector<Suspect> suspects_;
  bool thorough_ = false;  // bars so narrow that one wrong element among many shows, whatever the op
};

/// Both have the noise of the whole, which is no less, but single elements.
std::array<Probe, 2> halves(const Probe& whole) {
  Probe first = whole, second = whole;
  first.end = second.begin = whole.begin + (whole.end - whole.begin) / 2;
  for (Probe* half : {&first, &second}) {
    half->known.clear();
    if (half->end - half->begin == 1) half->noise.reset();
  }
  return {first, second};
}

/// The steps that a difference asks for.
std::vector<double> steps_of(const std::function<void(const Line&)>& difference) {
  std::vector<double> steps;
  difference([&](double t, double& reached) {
    steps.push_back(reached = t);
    return Pair<Projected>();
  });
  return steps;
}

/// The op's projections along the probe: those that are known, or else of one more run, which ends with the op.
Line BlameSearch::line(Probe& probe) {
  return [this, &probe](double t, double& reached) {
    reached = t;
    if (!probe.known.contains(t)) replay_->run({&probe}, t);
    const auto known = probe.known.find(t);
    if (known != probe.known.end()) return known->second;
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    return Pair<Projected>{Projected{nan, nan}, Projected{nan, nan}};
  };
}

Judged BlameSearch::judge(Probe& probe) {
  const Line f = line(probe);
  if (!probe.noise) probe.noise = measure_noise(f, 1, {});
  Middle middle{.at = {}, .noise = *probe.noise};
  Pair<Claim> claims;
  for (std::size_t p = 0; p < projections; ++p) {
    Sum sum{.count = probe.end - probe.begin};
    for (std::size_t i = probe.begin; i < probe.end; ++i) {
      const double u = replay_->direction(probe, i), part = u == 0 ? 0 : u * probe.input->gradient[p][i];
      sum.sum += part, sum.squares += part * part;
    }
    middle.at[p].magnitude = probe.op->magnitude[p];
    claims[p] = sum.claim(middle.at[p]);
    if (!thorough_) {
      claims[p].relative = std::max(claims[p].relative, 1e-5);
      claims[p].wanted = std::max(claims[p].wanted, 1e-5 * std::sqrt(sum.squares));
    }
  }
  const auto found = may_run_alone() ? differentiate(f, step, middle, claims).of : first_difference(f, step, middle);
  Judged worst;
  for (std::size_t p = 0; p < projections; ++p) {
    const double error = std::abs(claims[p].analytic - found[p].numeric);
    const double ratio = error > 0 && found[p].bar < infinity ? error / found[p].bar : 0;
    const Judged judged{probe, detail::judge(found[p], claims[p]), ratio, claims[p].analytic, found[p]};
    if (p == 0 || is_worse(judged, worst)) worst = judged;
  }
  return worst;
}

std::vector<Judged> BlameSearch::judge_all(std::vector<Probe>& probes) {
  static const auto steps_of_noise = steps_of([](const Line& f) { measure_noise(f, 1, {}); });
  static const auto steps = steps_of([](const Line& f) { first_difference(f, step, {}); });
  std::vector<Probe*> all, without_noise;
  for (Probe& probe : probes) {
    all.push_back(&probe);
    if (!probe.noise) without_noise.push_back(&probe);
  }
  replay_->run_together(without_noise, steps_of_noise);
  replay_->run_together(all, steps);
  std::vector<Judged> judged;
  for (Probe& probe : probes) judged.push_back(judge(probe));
  return judged;
}

/// An element beyond finite is wrong only if the derivative is finite. The others are wrong in any case.
std::vector<Judged> BlameSearch::confirmed_suspects() {
  std::vector<Judged> confirmed;
  for (const Suspect& s : suspects_) {
    if (!confirmed.empty() && confirmed.back().probe.input == s.input) continue;
    Probe probe{s.op, s.input, 0, s.element, s.element + 1};
    Judged judged = judge(probe);
    if (s.reason == Reason::non_finite && !std::isfinite(judged.numeric.numeric)) continue;
    judged.analytic = s.analytic * replay_->direction(probe, s.element);
    judged.reason = s.reason;
    confirmed.push_back(judged);
  }
  return confirmed;
}

/// Both random directions of each input, and what is not right there halved until one element is left.
std::vector<Judged> BlameSearch::found_along_directions(const std::vector<Judged>& without) {
  std::vector<Probe> probes;
  for (const RecordedOp& op : record_.ops)
    for (const OpInput& input : op.inputs) {
      const auto is_found = [&](const Judged& judged) { return judged.probe.input == &input; };
      if (std::none_of(without.begin(), without.end(), is_found)) probes.push_back({&op, &input, 0, 0, input.x.size()});
    }
  auto judged = judge_all(probes);
  for (Probe& probe : probes) ++probe.direction, probe.known.clear();
  for (const Judged& along_other : judge_all(probes)) judged.push_back(along_other);
  std::vector<Judged> undecided;
  std::copy_if(judged.begin(), judged.end(), std::back_inserter(undecided),
               [](const Judged& j) { return j.reason != Reason::ok; });

  std::map<std::pair<std::size_t, std::size_t>, std::vector<Judged>> open;  // what is left to search of each input
  std::vector<Judged> found, halved;
  for (std::size_t round = 0; round < most_halvings; ++round) {
    for (const Judged& j : judged)
      if (j.reason == Reason::mismatch || (j.reason != Reason::ok && may_run_alone())) open[order_of(j)].push_back(j);
    probes.clear();
    halved.clear();
    for (auto& [order, left] : open) {
      std::sort(left.begin(), left.end(), [](const Judged& a, const Judged& b) { return is_worse(b, a); });
      while (!left.empty()) {
        const Judged worst = left.back();
        left.pop_back();
        if (worst.probe.end - worst.probe.begin > 1) {
          for (Probe& half : halves(worst.probe)) probes.push_back(half);
          halved.push_back(worst);
          break;
        }
        if (worst.reason != Reason::mismatch) continue;
        found.push_back(worst);
        left.clear();
      }
    }
    if (probes.empty()) break;
    if (numbers(replay_->runs()) > most_numbers) {  // there is no time for single elements
      for (const Judged& j : halved)
        if (j.reason == Reason::mismatch && !j.numeric.kink) found.push_back(j);
      break;
    }
    judged = judge_all(probes);
  }
  for (const Judged& wrong : found_one_by_one(undecided, found)) found.push_back(wrong);
  return found;
}

/// Every element of what is not right along its directions, where halving found nothing: too many elements are at
/// kinks.
std::vector<Judged> BlameSearch::found_one_by_one(const std::vector<Judged>& undecided,
                                                  const std::vector<Judged>& found) {
  std::vector<Probe> probes;
  for (const Judged& whole : undecided) {
    const auto is_same = [&](const auto& j) { return j.input == whole.probe.input; };
    const auto is_found = [&](const Judged& j) { return is_same(j.probe); };
    if (whole.probe.end > most_one_by_one || numbers(replay_->runs()) > most_numbers) continue;
    if (std::any_of(found.begin(), found.end(), is_found) || std::any_of(probes.begin(), probes.end(), is_same))
      continue;
    for (std::size_t k = 0; k < whole.probe.end; ++k)
      probes.push_back({whole.probe.op, whole.probe.input, 0, k, k + 1});
  }
  std::map<std::pair<std::size_t, std::size_t>, Judged> worst;
  for (const Judged& j : judge_all(probes)) {
    const auto [known, is_first] = worst.try_emplace(order_of(j), j);
    if (!is_first && is_worse(j, known->second)) known->second = j;
  }
  std::vector<Judged> wrong;
  for (const auto& [order, j] : worst)
    if (j.reason == Reason::mismatch) wrong.push_back(j);
  return wrong;
}

std::vector<Judged> BlameSearch::wrong_elements() {
  std::vector<Judged> wrong = confirmed_suspects();
  for (const Judged& judged : found_along_directions(wrong)) wrong.push_back(judged);
  thorough_ = wrong.empty();
  if (thorough_) wrong = found_along_directions({});
  std::sort(wrong.begin(), wrong.end(), [](const Judged& a, const Judged& b) { return order_of(a) < order_of(b); });
  return wrong;
}

CheckedElement BlameSearch::element(const Judged& judged) const {
  const std::size_t k = judged.probe.begin;
  const double u = judged.probe.end - k == 1 ? replay_->direction(judged.probe, k) : 1;
  return {.place = place_of(k, judged.probe.input->x.shape()),
          .analytic = judged.analytic / u,
          .numeric = judged.numeric.numeric / u,
          .step = judged.numeric.step * std::abs(u),
          .bar = judged.numeric.bar / std::abs(u)};
}

/// " (input 0)" or " (blocks.1.linear1.weight)" for a memory that has a name of its own, else "".
std::string own_name(const double* data, const Record& record, const ParameterList<double>& parameters) {
  for (std::size_t i = 0; i < record.inputs.size(); ++i)
    if (record.inputs[i].data() == data) return fmt::format(" (input {})", i);
  for (const auto& [name, parameter] : parameters)
    if (parameter.data() == data) return fmt::format(" ({})", name);
  return {};
}

Blame blame_on(const Judged& wrong, const BlameSearch& search, const ParameterList<double>& parameters) {
  const RecordedOp& op = *wrong.probe.op;
  const OpInput& input = *wrong.probe.input;
  std::string argument;
  for (const std::size_t i : input.arguments)
    argument += (argument.empty() ? "" : " and ") + argument_name(op.outputs[0].op(), i, op.input_count);
  const auto is_zero = [](const std::vector<double>& g) {
    return std::all_of(g.begin(), g.end(), [](double x) { return x == 0; });
  };
  const bool none = wrong.reason == Reason::mismatch && is_zero(input.gradient[0]) && is_zero(input.gradient[1]);
  return {.layer = op.outputs[0].layer(),
          .op = op.outputs[0].op(),
          .argument = argument + own_name(input.x.data(), search.record(), parameters),
          .reason = none ? Reason::no_gradient : wrong.reason,
          .worst = search.element(wrong)};
}

Blame blame_on(const HiddenInput& hidden, const Record& record, const ParameterList<double>& parameters) {
  const bool on_tape = hidden.parameter >= parameters.size();
  std::string name =
      own_name(on_tape ? hidden.memory.data() : parameters[hidden.parameter].parameter.data(), record, parameters);
  if (name.empty()) name = fmt::format(" (made by {})", hidden.memory.op());
  return {.layer = hidden.op->outputs[0].layer(),
          .op = hidden.op->outputs[0].op(),
          .argument = "that is not among its inputs" + name,
          .reason = Reason::no_gradient,
          .worst = hidden.evidence};
}

Blame blame_on(const OutsideValue& outside) {
  const std::string before = outside.after ? fmt::format("{}, and then ", outside.after->op()) : "";
  return {.layer = outside.value.layer(),
          .op = before + "a value made outside the tape's ops",
          .argument = "",
          .reason = Reason::no_gradient,
          .worst = outside.evidence};
}

}  // namespace

std::vector<Blame> find_blame(const CheckedFunction& f, const std::vector<Shape>& shapes,
                              const std::vector<std::vector<double>>& values, const ParameterList<double>& parameters,
                              std::uint64_t seed) {
  const Given given{f, shapes, values};
  BlameSearch search(given, seed);
  std::vector<Blame> blame;
  for (const Judged& wrong : search.wrong_elements()) blame.push_back(blame_on(wrong, search, parameters));
  if (blame.empty()) {  // no callback is wrong, but some may not be told of all that their op reads
    for (const auto& hidden : find_hidden_inputs(given, search.record(), parameters))
      blame.push_back(blame_on(hidden, search.record(), parameters));
    for (const auto& outside : find_outside_values(given, search.record(), parameters))
      blame.push_back(blame_on(outside));
  }
  if (blame.size() > most_blamed) blame.resize(most_blamed);
  return blame;
}

}  // namespace xtape::detail
