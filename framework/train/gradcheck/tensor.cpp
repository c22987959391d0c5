#include <xtape/framework/train/gradcheck/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include <xtape/framework/base/random.hpp>
#include <xtape/framework/train/gradcheck/directions.hpp>

namespace xtape::detail {
namespace {

constexpr std::uint64_t sample_stream = 3 << 20;

/// What a derivative is compared with, in the unit of one: the bar that is wanted is a hundred thousandth of `size`, or
/// of a derivative that would change the function by a hundred thousandth over the scale of what it is a function of.
Claim claim(double analytic, double size, const Projected& middle, double scale) {
  const double unit = std::max(size, 1e-5 * middle.magnitude / scale);
  return {
      .analytic = analytic, .wanted = 1e-5 * unit, .tolerated = 1e-4 * std::max(size, 1e-3 * middle.magnitude / scale)};
}

/// A mismatch that the rounding of the analytic value explains is none; its bar then covers that, too. What is wrong
/// beside a kink stays wrong.
Reason unless_rounded(Derivative& d, const Claim& claim, double rounding) {
  if (d.kink || !(std::abs(claim.analytic - d.numeric) <= d.bar + rounding)) return Reason::mismatch;
  d.bar += rounding;
  return Reason::ok;
}

class TensorCheck {
 public:
  TensorCheck(Checked& checked, std::size_t i, const Pair<std::vector<double>>& analytic, const Middle& middle,
              Rounding& rounding, TensorReport& report)
      : checked_(checked), i_(i), analytic_(analytic), middle_(middle), rounding_(rounding), report_(report) {
    for (std::size_t p = 0; p < projections; ++p) size_[p] = root_mean_square(analytic[p]);
  }

  /// Checks element k against its differences.
  void element(std::size_t k) {
    const double scale = checked_.scale(i_, k), h = step_ * scale;
    Pair<Claim> claims;
    for (std::size_t p = 0; p < projections; ++p) {
      const double a = analytic_[p][k];
      claims[p] = claim(a, std::isfinite(a) ? std::max(size_[p], std::abs(a)) : size_[p], middle_.at[p], scale);
    }
    const Differentiated found = differentiate(along_element(checked_, i_, k), h, middle_, claims);
    // Two neighbours in a row that ask for another step: the others will as well.
    const bool another = found.next_step != h;
    if (another && asked_) step_ = std::clamp(found.next_step / scale, 1e-9, 1e-2);
    asked_ = another;

    ++report_.checked;
    Reason reason = Reason::ok;
    for (std::size_t p = 0; p < projections; ++p) {
      Derivative d = found.of[p];
      Reason of_projection = judge(d, claims[p]);
      if (of_projection == Reason::mismatch) of_projection = unless_rounded(d, claims[p], rounding_.of(i_, p, k));
      reason = std::max(reason, of_projection);
      depends_ = depends_ || d.numeric != 0;
      keep_worst(of_projection, {.place = place_of(k, report_.shape),
                                 .analytic = claims[p].analytic,
                                 .numeric = d.numeric,
                                 .step = d.step,
                                 .bar = d.bar});
    }
    report_.kinks += reason == Reason::kink;
    report_.inconclusive += reason == Reason::inconclusive;
    worst_reason_ = std::max(worst_reason_, reason);
  }

  void direction(const std::vector<double>& along_direction) {
    const std::size_t n = along_direction.size();
    Pair<Claim> claims;
    for (std::size_t p = 0; p < projections; ++p) {
      Sum sum;
      sum.add(analytic_[p], along_direction);
      claims[p] = sum.claim(middle_.at[p]);
    }
    const auto found = differentiate(along(checked_, i_, along_direction, 0, n), 1e-3, middle_, claims);
    ++report_.directions;
    for (std::size_t p = 0; p < projections; ++p) {
      Derivative d = found.of[p];
      depends_ = depends_ || d.numeric != 0;
      Reason reason = judge(d, claims[p]);
      if (reason == Reason::mismatch) reason = unless_rounded(d, claims[p], rounding_.along(i_, p, along_direction));
      // Along a direction through many elements lie many kinks: no pair of slopes bounds the derivative.
      if (d.kink || reason == Reason::inconclusive || reason == Reason::non_finite) {
        ++open_directions_;
        continue;
      }
      if (reason != Reason::mismatch || worst_reason_ >= Reason::mismatch) continue;
      element(wrong_element(p, along_direction, d.numeric - claims[p].analytic));
      if (worst_reason_ >= Reason::mismatch) continue;
      worst_reason_ = Reason::mismatch;
      report_.worst = {.analytic = claims[p].analytic, .numeric = d.numeric, .step = d.step, .bar = d.bar};
      report_.note = "the derivative along a random direction is wrong, but no element by itself was found to be";
    }
  }

  void conclude() {
    report_.reason = worst_reason_;
    const auto zero = [](const std::vector<double>& gradient) {
      return std::all_of(gradient.begin(), gradient.end(), [](double g) { return g == 0; });
    };
    const bool no_gradient = zero(analytic_[0]) && zero(analytic_[1]);
    if (worst_reason_ == Reason::mismatch && no_gradient) report_.reason = Reason::no_gradient;
    if (worst_reason_ == Reason::inconclusive && 100 * report_.inconclusive <= report_.checked)
      report_.reason = report_.kinks > 0 ? Reason::kink : Reason::ok;
    if (report_.reason <= Reason::kink && report_.directions > 0 &&
        open_directions_ == projections * report_.directions)
      report_.note = "along random directions nothing could be told";
    if (!depends_ && no_gradient && report_.checked > 0 && report_.reason == Reason::ok)
      report_.note = "the output does not depend on it";
  }

 private:
  void keep_worst(Reason reason, const CheckedElement& element) {
    if (seen_)
      if (reason < shown_ || (reason == shown_ && !(element.ratio() > report_.worst.ratio()))) return;
    seen_ = true;
    shown_ = reason;
    report_.worst = element;
  }

  /// Halves the direction until one element is left, each time keeping the half that is further off. `error` is that of
  /// the whole.
  std::size_t wrong_element(std::size_t p, const std::vector<double>& direction, double error) {
    std::size_t begin = 0, end = direction.size();
    while (end - begin > 1) {
      const std::size_t half = begin + (end - begin) / 2;
      const auto found = first_difference(along(checked_, i_, direction, begin, half), 1e-3, middle_);
      double analytic = 0;
      for (std::size_t k = begin; k < half; ++k) analytic += analytic_[p][k] * direction[k];
      const double left = found[p].numeric - analytic, right = error - left;
      if (std::abs(left) > std::abs(right))
        end = half, error = left;
      else
        begin = half, error = right;
    }
    return begin;
  }

  Checked& checked_;
  const std::size_t i_;
  const Pair<std::vector<double>>& analytic_;
  const Middle& middle_;
  Rounding& rounding_;
  TensorReport& report_;
  Pair<double> size_;   // of the gradients
  double step_ = 1e-3;  // in scales of an element
  bool asked_ = false;  // for another step, by the element before
  bool depends_ = false;
  bool seen_ = false;
  Reason shown_ = Reason::ok, worst_reason_ = Reason::ok;
  std::size_t open_directions_ = 0;  // those of a projection that told nothing
};

/// The elements to check of a tensor of which not all are.
std::set<std::size_t> sample(const Pair<std::vector<double>>& analytic, std::size_t samples, std::size_t i,
                             std::uint64_t seed) {
  const std::size_t n = analytic[0].size();
  const auto smaller = [](double a, double b) { return std::abs(a) < std::abs(b); };
  const auto largest = std::max_element(analytic[0].begin(), analytic[0].end(), smaller);
  std::set<std::size_t> chosen = {static_cast<std::size_t>(largest - analytic[0].begin())};
  Rng rng(seed, (sample_stream + i) << 40);
  while (chosen.size() < samples) chosen.insert(rng.below(n));
  return chosen;
}

}  // namespace

void check_tensor(Checked& checked, std::size_t i, const Pair<std::vector<double>>& analytic, const Middle& middle,
                  Rounding& rounding, const Sampling& sampling, TensorReport& report) {
  const std::size_t n = report.shape.size();
  TensorCheck check(checked, i, analytic, middle, rounding, report);
  const std::size_t limit = sampling.samples > 0 ? sampling.samples : Sampling::whole_limit;
  if (n <= limit) {
    for (std::size_t k = 0; k < n; ++k) check.element(k);
  } else {
    const std::size_t samples = sampling.samples > 0 ? sampling.samples : Sampling::default_samples;
    std::set<std::size_t> chosen = sample(analytic, samples, i, checked.seed());
    bool finite = true;
    for (const auto& gradient : analytic) {
      const auto found = std::find_if_not(gradient.begin(), gradient.end(), [](double g) { return std::isfinite(g); });
      if (found == gradient.end()) continue;
      chosen.insert(static_cast<std::size_t>(found - gradient.begin()));
      finite = false;
    }
    for (const std::size_t k : chosen) check.element(k);
    for (std::size_t number = 0; finite && number < sampling.directions; ++number)
      check.direction(random_direction(checked, i, number));
  }
  check.conclude();
}

}  // namespace xtape::detail
