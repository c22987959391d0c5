#include <xtape/framework/train/schedule.hpp>

#include <cmath>
#include <numbers>

namespace xtape {

double WarmupCosineSchedule::operator()(std::uint64_t step) const {
  if (step < warmup) return rate * static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step >= total) return floor;
  const double progress = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
  return std::lerp(floor, rate,
                   0.5 * (1 + std::cos(std::numbers::pi * progress)));  // never above rate, not by a rounding
}

}  // namespace xtape
