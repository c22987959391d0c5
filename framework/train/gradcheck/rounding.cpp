#include <xtape/framework/train/gradcheck/rounding.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <xtape/framework/base/random.hpp>

namespace xtape::detail {
namespace {

constexpr std::uint64_t last_place_stream = 5 << 20;
constexpr int runs = 16;
constexpr double safety = 4;  // the largest of so few spreads is taken

/// Everything that is checked, moved by up to eight units in its last place, and put back at the end of the block.
class Nudged {
 public:
  Nudged(Checked& checked, Rng& rng) : checked_(checked) {
    for (std::size_t i = 0; i < checked.count(); ++i) {
      double* x = checked.write(i);
      before_.emplace_back(x, x + checked.size(i));
      for (std::size_t k = 0; k < checked.size(i); ++k)
        x[k] *= 1 + std::numeric_limits<double>::epsilon() * (static_cast<double>(rng.below(17)) - 8);
    }
  }
  Nudged(const Nudged&) = delete;
  Nudged& operator=(const Nudged&) = delete;
  ~Nudged() {
    for (std::size_t i = 0; i < before_.size(); ++i) std::copy(before_[i].begin(), before_[i].end(), checked_.write(i));
  }

 private:
  Checked& checked_;
  std::vector<std::vector<double>> before_;
};

}  // namespace

void Rounding::measure() {
  for (const auto& gradients : claimed_.gradients)
    spread_.push_back({std::vector<double>(gradients[0].size()), std::vector<double>(gradients[1].size())});
  Rng rng(checked_.seed(), last_place_stream << 36);
  for (int run = 0; run < runs; ++run) {
    const Nudged nudged(checked_, rng);
    for (std::size_t p = 0; p < projections; ++p) {
      if (!checked_.backward(p, [](std::size_t, double*) {})) continue;
      for (std::size_t i = 0; i < spread_.size(); ++i) {
        const double* gradient = checked_.grad(i);
        for (std::size_t k = 0; k < spread_[i][p].size(); ++k) {
          double& spread = spread_[i][p][k];
          const double difference = std::abs(gradient[k] - claimed_.gradients[i][p][k]);
          if (!(difference <= spread)) spread = difference;
        }
      }
    }
  }
  for (const auto& spread : spread_) usual_.push_back({root_mean_square(spread[0]), root_mean_square(spread[1])});
}

double Rounding::of(std::size_t i, std::size_t p, std::size_t k) {
  if (spread_.empty()) measure();
  return safety * std::max(spread_[i][p][k], usual_[i][p]);
}

double Rounding::along(std::size_t i, std::size_t p, const std::vector<double>& direction) {
  double sum = 0;
  for (std::size_t k = 0; k < direction.size(); ++k) sum += std::abs(direction[k]) * of(i, p, k);
  return sum;
}

}  // namespace xtape::detail
