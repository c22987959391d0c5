#include <xtape/framework/train/gradcheck/claimed.hpp>

#include <algorithm>
#include <cmath>

#include <xtape/framework/base/random.hpp>
#include <xtape/framework/train/gradcheck/directions.hpp>
#include <xtape/framework/train/gradcheck/same_bits.hpp>

namespace xtape::detail {
namespace {

constexpr std::uint64_t prefill_stream = 1 << 21, noise_direction = 999;
constexpr auto empty = [](std::size_t, double*) {};

/// An element in which two backward passes differ.
Claimed::Objection compare(const std::vector<double>& first, const double* second, const Shape& shape) {
  for (std::size_t k = 0; k < first.size(); ++k) {
    if (same_bits(first[k], second[k])) continue;
    const Shape place = place_of(k, shape);
    return {.reason = Reason::non_deterministic,
            .where = {.place = place, .analytic = first[k], .numeric = second[k]},
            .note = fmt::format("backward gave {:.10g} at {} and then {:.10g}", first[k], place, second[k])};
  }
  return {};
}

/// Numbers as large as a gradient, for it to be added to.
class Prefill {
 public:
  Prefill(const std::vector<double>& gradient, std::uint64_t seed, std::size_t i)
      : size_(root_mean_square(gradient)), rng_(seed, (prefill_stream + i) << 40) {
    if (size_ == 0) size_ = 1;
  }
  double size() const { return size_; }
  double next() { return size_ * rng_.normal(); }

 private:
  double size_;
  Rng rng_;
};

/// An element whose gradient was not added to what stood there. The increment only has to be the gradient up to
/// rounding: what overwrites is off by as much as the numbers are.
Claimed::Objection check_adding(const std::vector<double>& gradient, const double* sum, Prefill prefill,
                                const Shape& shape) {
  for (std::size_t k = 0; k < gradient.size(); ++k) {
    const double before = prefill.next(), increment = sum[k] - before;
    const double bar = 1e-6 * (std::abs(before) + std::abs(gradient[k]) + prefill.size());
    if (!std::isfinite(gradient[k]) || std::abs(increment - gradient[k]) <= bar) continue;
    const Shape place = place_of(k, shape);
    return {.reason = Reason::mismatch,
            .where = {.place = place, .analytic = increment, .numeric = gradient[k], .step = 0, .bar = bar},
            .note = fmt::format("backward overwrites what stands in the gradient: {:.10g} at {} became {:.10g}, not "
                                "{:.10g}",
                                before, place, sum[k], before + gradient[k])};
  }
  return {};
}

}  // namespace

Claimed::Claimed(Checked& checked) {
  for (std::size_t i = 0; i < checked.count(); ++i)
    gradients.push_back({std::vector<double>(checked.size(i)), std::vector<double>(checked.size(i))});
  for (std::size_t p = 0; p < projections; ++p) {
    if (!checked.backward(p, empty)) continue;
    for (std::size_t i = 0; i < checked.count(); ++i)
      std::copy_n(checked.grad(i), checked.size(i), gradients[i][p].begin());
  }
}

std::vector<Claimed::Objection> Claimed::objections(Checked& checked) const {
  std::vector<Objection> result(checked.count());
  if (!checked.backward(0, empty)) return result;
  for (std::size_t i = 0; i < checked.count(); ++i)
    result[i] = compare(gradients[i][0], checked.grad(i), checked.shape(i));
  const auto prefill = [&](std::size_t i) { return Prefill(gradients[i][0], checked.seed(), i); };
  checked.backward(0, [&](std::size_t i, double* gradient) {
    Prefill numbers = prefill(i);
    std::generate_n(gradient, checked.size(i), [&] { return numbers.next(); });
  });
  for (std::size_t i = 0; i < checked.count(); ++i)
    if (result[i].reason == Reason::ok)
      result[i] = check_adding(gradients[i][0], checked.grad(i), prefill(i), checked.shape(i));
  return result;
}

Outset outset_of(Checked& checked) {
  checked.project();
  const Pair<Projected> again = checked.project();
  for (std::size_t p = 0; p < projections; ++p)
    if (again[p].magnitude != 0) return {.reason = Reason::non_deterministic, .note = "two runs of forward differ"};
  Outset result;
  const auto directions = random_directions(checked, noise_direction);
  result.middle.noise = measure_noise(along_all(checked, directions), 1, {});
  for (std::size_t p = 0; p < projections; ++p) result.middle.at[p].magnitude = checked.magnitude(p);
  if (!std::isfinite(result.middle.at[0].magnitude))
    result.reason = Reason::non_finite, result.note = "the output is not finite";
  return result;
}

}  // namespace xtape::detail
