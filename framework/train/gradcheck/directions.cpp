#include <xtape/framework/train/gradcheck/directions.hpp>

#include <algorithm>
#include <cmath>

#include <xtape/framework/base/random.hpp>

namespace xtape::detail {
namespace {

constexpr std::uint64_t direction_stream = 1 << 22;

/// Moves x by t along a direction, from `begin` to `end`.
void move(double* x, double t, const std::vector<double>& direction, std::size_t begin, std::size_t end) {
  for (std::size_t k = begin; k < end; ++k) x[k] += t * direction[k];
}

}  // namespace

std::vector<double> random_direction(const Checked& checked, std::size_t i, std::uint64_t number) {
  Rng rng(checked.seed(), (direction_stream + 1000 * i + number) << 36);
  std::vector<double> direction(checked.size(i));
  std::uint64_t bits = 0;
  for (std::size_t k = 0; k < direction.size(); ++k, bits >>= 1) {
    if (k % 64 == 0) bits = rng.bits();
    direction[k] = (bits & 1) != 0 ? checked.scale(i, k) : -checked.scale(i, k);
  }
  return direction;
}

std::vector<std::vector<double>> random_directions(const Checked& checked, std::uint64_t number) {
  std::vector<std::vector<double>> directions;
  for (std::size_t i = 0; i < checked.count(); ++i) directions.push_back(random_direction(checked, i, number));
  return directions;
}

Line along(Checked& checked, std::size_t i, const std::vector<double>& direction, std::size_t begin, std::size_t end) {
  return [&checked, &direction, i, begin, end](double t, double& reached) {
    const PutBack put_back(checked, i, begin, end);
    move(checked.write(i), t, direction, begin, end);
    reached = t;
    return checked.project();
  };
}

Line along_all(Checked& checked, const std::vector<std::vector<double>>& directions) {
  return [&checked, &directions](double t, double& reached) {
    std::vector<std::unique_ptr<PutBack>> put_back;
    for (std::size_t i = 0; i < checked.count(); ++i) {
      put_back.push_back(std::make_unique<PutBack>(checked, i, 0, checked.size(i)));
      move(checked.write(i), t, directions[i], 0, directions[i].size());
    }
    reached = t;
    return checked.project();
  };
}

void Sum::add(const std::vector<double>& gradient, const std::vector<double>& direction) {
  for (std::size_t k = 0; k < direction.size(); ++k) {
    const double term = gradient[k] * direction[k];
    sum += term;
    squares += term * term;
  }
  count += direction.size();
}

Claim Sum::claim(const Projected& middle) const {
  const double all = std::sqrt(squares), size = std::max(all, 1e-5 * middle.magnitude);
  // A thousandth of one element is ten bars.
  const double relative = std::min(1e-5, 1e-4 / std::sqrt(static_cast<double>(count)));
  return {.analytic = sum,
          .wanted = std::max(relative * all, 1e-10 * middle.magnitude),
          .tolerated = 1e-4 * size,
          .relative = relative};
}

}  // namespace xtape::detail
