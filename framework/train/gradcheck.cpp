#include <xtape/framework/train/gradcheck.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>

#include <xtape/framework/base/random.hpp>

namespace xtape {
namespace detail {

std::vector<double> normal_values(const Shape& shape, std::uint64_t seed, std::uint64_t stream) {
  Rng rng(seed, stream << 40);
  std::vector<double> values(shape.size());
  std::generate(values.begin(), values.end(), [&] { return rng.normal(); });
  return values;
}

namespace {

constexpr double epsilon = std::numeric_limits<double>::epsilon();
constexpr std::uint64_t projection_stream = 1 << 20, prefill_stream = 1 << 21;

/// The numbers whose derivatives are checked: inputs first, then parameters.
class Checked {
 public:
  Checked(const CheckedFunction& f, const std::vector<Shape>& shapes, std::vector<std::vector<double>> values,
          ParameterList<double> parameters, std::uint64_t seed)
      : f_(f), shapes_(shapes), values_(std::move(values)), parameters_(std::move(parameters)), seed_(seed) {
    std::erase_if(parameters_, [](const auto& entry) { return entry.parameter.frozen(); });
  }
  Checked(const Checked&) = delete;
  Checked& operator=(const Checked&) = delete;
  ~Checked() { zero_grad(parameters_); }  // what stands there comes from random numbers

  std::size_t count() const { return values_.size() + parameters_.size(); }
  bool is_input(std::size_t i) const { return i < values_.size(); }
  std::string name(std::size_t i) const {
    return is_input(i) ? fmt::format("input {}", i) : parameters_[i - values_.size()].name;
  }
  Shape shape(std::size_t i) const {
    return is_input(i) ? shapes_[i] : parameters_[i - values_.size()].parameter.shape();
  }
  double get(std::size_t i, std::size_t k) const {
    return is_input(i) ? values_[i][k] : parameters_[i - values_.size()].parameter.data()[k];
  }
  void set(std::size_t i, std::size_t k, double x) {
    if (is_input(i))
      values_[i][k] = x;
    else
      parameters_[i - values_.size()].parameter.write_data()[k] = x;
  }

  struct Projected {
    double value, magnitude;  // sum of y w, and of |y w|: the scale of rounding errors
  };
  Projected project() {
    const auto guard = tape_.no_grad();
    const Var<double> y = forward(false);
    const double *data = y.data(), *w = projection(y.shape()).data();
    // Compensated summation (Neumaier 1974): differences of these sums are taken.
    double sum = 0, lost = 0, magnitude = 0;
    for (std::size_t k = 0; k < y.size(); ++k) {
      const double term = data[k] * w[k], next = sum + term;
      lost += std::abs(sum) >= std::abs(term) ? (sum - next) + term : (term - next) + sum;
      sum = next;
      magnitude += std::abs(term);
    }
    return {sum + lost, magnitude};
  }

  /// Gradients of the projection, added to the given numbers or to none. Empty if the output requires no gradient.
  std::vector<std::vector<double>> gradients(const std::vector<std::vector<double>>* prefill) {
    for (auto& entry : parameters_) entry.parameter.zero_grad();
    const Var<double> y = forward(true);
    if (!y.requires_grad()) return {};
    if (prefill != nullptr)
      for (std::size_t i = 0; i < count(); ++i) std::copy((*prefill)[i].begin(), (*prefill)[i].end(), grad_data(i));
    tape_.backward(y, adapt(projection(y.shape()).data(), y.shape()));
    std::vector<std::vector<double>> result;
    for (std::size_t i = 0; i < count(); ++i) result.emplace_back(grad_data(i), grad_data(i) + shape(i).size());
    return result;
  }

 private:
  Var<double> forward(bool requires_grad) {
    tape_.clear();
    tape_.set_step(0);
    inputs_.clear();
    for (std::size_t i = 0; i < values_.size(); ++i)
      inputs_.push_back(tape_.input(adapt(values_[i].data(), shapes_[i]), requires_grad));
    return f_(tape_, inputs_);
  }
  double* grad_data(std::size_t i) {
    return is_input(i) ? inputs_[i].grad().data() : parameters_[i - values_.size()].parameter.grad_data();
  }
  std::vector<double>& projection(const Shape& shape) {
    if (projection_.size() != shape.size()) projection_ = normal_values(shape, seed_, projection_stream);
    return projection_;
  }

  const CheckedFunction& f_;
  std::vector<Shape> shapes_;
  std::vector<std::vector<double>> values_;
  ParameterList<double> parameters_;
  std::uint64_t seed_;
  Tape<double> tape_;
  std::vector<Var<double>> inputs_;
  std::vector<double> projection_;
};

/// Differences of f around one element with the steps h, h/2 and h/4.
struct Differences {
  double numeric = std::numeric_limits<double>::quiet_NaN();  // extrapolated derivative
  double truncation = 0, noise = 0;        // its error because the step is not 0, and because f is rounded
  double below = 0, above = 0, slack = 0;  // one-sided slopes and how far they may be off
  bool kink = false;
  double step = 0;
  double bar() const { return truncation + noise; }
};

/// The least that rounding does to a value of f.
double rounding(const Checked::Projected& f) { return 4 * epsilon * f.magnitude; }

/// f with one element moved by about `offset`; `reached` is what the rounded sum really moved by.
Checked::Projected moved(Checked& checked, std::size_t i, std::size_t k, double offset, double& reached) {
  struct PutBack {  // also if f throws
    Checked& checked;
    std::size_t i, k;
    double x;
    ~PutBack() { checked.set(i, k, x); }
  };
  const PutBack before{checked, i, k, checked.get(i, k)};
  checked.set(i, k, before.x + offset);
  reached = checked.get(i, k) - before.x;
  return checked.project();
}

Differences difference(Checked& checked, std::size_t i, std::size_t k, double h, double middle, double noise_of_f) {
  std::array<double, 3> above, below, central;
  for (std::size_t level = 0; level < 3; ++level) {
    const double step = h / static_cast<double>(1 << level);
    double up, down;
    const auto f_up = moved(checked, i, k, step, up), f_down = moved(checked, i, k, -step, down);
    above[level] = (f_up.value - middle) / up;
    below[level] = (f_down.value - middle) / down;
    central[level] = (f_up.value - f_down.value) / (up - down);
    noise_of_f = std::max({noise_of_f, rounding(f_up), rounding(f_down)});
  }
  const double noise = 16 * noise_of_f / h;
  // Where f is smooth the jump of the slopes halves with the step; at a kink it stays.
  const double jump1 = std::abs(above[1] - below[1]), jump2 = std::abs(above[2] - below[2]);
  return {.numeric = (4 * central[2] - central[1]) / 3,
          // Two differences: one alone is small by accident where the terms in h^2 and h^4 cancel.
          .truncation = std::abs(central[0] - central[1]) + 4 * std::abs(central[1] - central[2]),
          .noise = noise,
          .below = below[2],
          .above = above[2],
          .slack = std::abs(above[1] - above[2]) + std::abs(below[1] - below[2]) + 4 * noise,
          .kink = jump2 > 0.75 * jump1 && jump2 > 16 * noise,
          .step = h};
}

/// The difference with the narrowest error bar on a ladder of steps from h down. A step is too wide where f bends
/// within it, has a kink within it, or is not finite at its ends; what still looks like a kink at the shortest step is
/// one.
Differences best_difference(Checked& checked, std::size_t i, std::size_t k, double h, double middle,
                            double noise_of_f) {
  constexpr int rungs = 7;
  constexpr double narrow = 1e-5;
  Differences best;
  for (int rung = 0; rung < rungs; ++rung, h /= 8) {
    const Differences d = difference(checked, i, k, h, middle, noise_of_f);
    if (!std::isfinite(d.numeric + d.bar())) continue;
    const bool better = d.kink ? d.slack < best.slack : d.bar() < best.bar();
    if (better || d.kink != best.kink || best.step == 0) best = d;
    if (!d.kink && d.truncation <= std::max(d.noise, narrow * std::abs(d.numeric))) break;
  }
  return best;
}

/// What rounding does to f, measured: second differences over so few units in the last place that only noise is left.
double noise_of(Checked& checked, std::size_t i, std::size_t k, double scale, const Checked::Projected& middle) {
  double noise = rounding(middle);
  for (const double units : {16, 32, 48}) {
    double up, down;
    const auto f_up = moved(checked, i, k, units * epsilon * scale, up);
    const auto f_down = moved(checked, i, k, -units * epsilon * scale, down);
    const double second = std::abs((f_up.value - middle.value) + (f_down.value - middle.value));
    if (std::isfinite(second)) noise = std::max(noise, second);
  }
  return noise;
}

Shape place_of(std::size_t k, const Shape& shape) {
  Shape place = shape;
  for (std::size_t axis = shape.rank(); axis-- > 0; k /= shape[axis]) place[axis] = k % shape[axis];
  return place;
}

void check_tensor(Checked& checked, std::size_t i, const std::vector<double>& analytic,
                  const Checked::Projected& middle, TensorReport& report) {
  const std::size_t n = report.shape.size();
  double squares = 0;
  for (std::size_t k = 0; k < n; ++k) squares += checked.get(i, k) * checked.get(i, k);
  const double typical = n > 0 ? std::sqrt(squares / static_cast<double>(n)) : 0;
  const auto scale_of = [&](std::size_t k) {
    const double scale = std::max(std::abs(checked.get(i, k)), 0.1 * typical);
    return scale > 0 ? scale : 1;
  };
  double noise = 0;
  for (std::size_t sample = 0; sample < std::min<std::size_t>(n, 3); ++sample) {
    const std::size_t k = sample * n / 3;
    noise = std::max(noise, noise_of(checked, i, k, scale_of(k), middle));
  }

  double worst_ratio = -1;
  bool all_zero = true, any_mismatch = false, any_non_finite = false;
  for (std::size_t k = 0; k < n; ++k) {
    const Differences d = best_difference(checked, i, k, 1e-3 * scale_of(k), middle.value, noise);
    const double low = std::min(d.below, d.above) - d.slack, high = std::max(d.below, d.above) + d.slack;
    const double error = std::abs(analytic[k] - d.numeric);
    const bool accepted = d.kink ? analytic[k] >= low && analytic[k] <= high : error <= d.bar();
    const bool finite = std::isfinite(error);
    ++report.checked;
    report.kinks += d.kink && accepted;
    all_zero &= analytic[k] == 0;
    any_non_finite |= !finite;
    any_mismatch |= !accepted;
    double ratio = finite ? error > 0 ? error / d.bar() : 0 : std::numeric_limits<double>::infinity();
    if (d.kink && accepted) ratio = 0;
    if (ratio > worst_ratio) {
      worst_ratio = ratio;
      report.analytic = analytic[k];
      report.numeric = d.numeric;
      report.step = d.step;
      report.bar = d.bar();
      report.worst = place_of(k, report.shape);
    }
  }
  if (any_non_finite)
    report.verdict = Verdict::non_finite;
  else if (any_mismatch)
    report.verdict = all_zero ? Verdict::no_gradient : Verdict::mismatch;
  else if (report.kinks > 0)
    report.verdict = Verdict::kink;
}

/// Equal bit for bit, so that a NaN is equal to itself.
bool same_bits(std::span<const double> a, std::span<const double> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace

GradcheckReport run_gradcheck(const CheckedFunction& f, const std::vector<Shape>& shapes,
                              std::vector<std::vector<double>> values, ParameterList<double> parameters,
                              std::uint64_t seed) {
  Checked checked(f, shapes, std::move(values), std::move(parameters), seed);
  std::vector<std::vector<double>> prefill;
  for (std::size_t i = 0; i < checked.count(); ++i)
    prefill.push_back(normal_values(checked.shape(i), seed, prefill_stream + i));
  auto analytic = checked.gradients(nullptr);
  const auto again = checked.gradients(nullptr);
  const auto added = checked.gradients(&prefill);
  const auto middle = checked.project(), middle_again = checked.project();
  const bool forward_repeats = same_bits({&middle.value, 1}, {&middle_again.value, 1});

  GradcheckReport report;
  for (std::size_t i = 0; i < checked.count(); ++i) {
    TensorReport& tensor = report.tensors.emplace_back();
    tensor.name = checked.name(i);
    tensor.shape = checked.shape(i);
    const std::vector<double> gradient = analytic.empty() ? std::vector<double>(tensor.shape.size(), 0.0) : analytic[i];
    check_tensor(checked, i, gradient, middle, tensor);
    for (std::size_t k = 0; !added.empty() && k < gradient.size(); ++k) {
      const double expected = prefill[i][k] + gradient[k];
      const double bar = 1e-10 * (std::abs(prefill[i][k]) + std::abs(gradient[k]));
      if (tensor.verdict > Verdict::kink || std::abs(added[i][k] - expected) <= bar) continue;
      tensor.verdict = Verdict::does_not_add;
    }
    const bool repeats = forward_repeats && (analytic.empty() || same_bits(analytic[i], again[i]));
    if (!repeats && tensor.verdict != Verdict::non_finite) tensor.verdict = Verdict::non_deterministic;
  }
  return report;
}

}  // namespace detail

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::kink:
      return "kink";
    case Verdict::mismatch:
      return "mismatch";
    case Verdict::no_gradient:
      return "no gradient";
    case Verdict::does_not_add:
      return "does not add";
    case Verdict::non_deterministic:
      return "non-deterministic";
    case Verdict::non_finite:
      return "non-finite";
  }
  return "";
}

GradcheckReport::operator bool() const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const TensorReport& t) { return t.verdict == Verdict::ok || t.verdict == Verdict::kink; });
}

std::string to_string(const GradcheckReport& report) {
  std::size_t verdicts = 7, names = 6, places = 8;  // widths of the columns
  const auto name_of = [](const TensorReport& t) { return fmt::format("{} {}", t.name, t.shape); };
  for (const TensorReport& t : report.tensors) {
    verdicts = std::max(verdicts, std::string_view(to_string(t.verdict)).size());
    names = std::max(names, name_of(t).size());
    places = std::max(places, to_string(t.worst).size());
  }
  std::string text =
      fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>16}  {:>16}  {:>9}  {:>8}  {:>7}\n", "verdict", verdicts, "tensor", names,
                  "worst at", places, "analytic", "numeric", "error bar", "step", "checked");
  for (const TensorReport& t : report.tensors)
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>16.10g}  {:>16.10g}  {:>9.2g}  {:>8.2g}  {:>7}{}\n",
                        to_string(t.verdict), verdicts, name_of(t), names, to_string(t.worst), places, t.analytic,
                        t.numeric, t.bar, t.step, t.checked, t.kinks > 0 ? fmt::format(", {} at a kink", t.kinks) : "");
  return text;
}

std::ostream& operator<<(std::ostream& out, const GradcheckReport& report) { return out << to_string(report); }

}  // namespace xtape
