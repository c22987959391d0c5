#include <xtape/framework/train/schedule.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

#include <xtape/framework/base/error.hpp>

namespace xtape {
namespace {

void require_range(const char* schedule, double rate, double floor) {
  require(std::isfinite(rate) && 0 <= floor && floor <= rate, "[{}] expected 0 <= floor <= rate, got floor {}, rate {}",
          schedule, floor, rate);
}

/// From `a` at progress 0 to `b` at 1, and never beyond either, not by a rounding.
double line(double a, double b, double progress) { return std::lerp(a, b, progress); }
double half_cosine(double a, double b, double progress) {
  return std::lerp(b, a, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

/// Up in a line for `warmup` steps, then down along the curve until step `total`.
template <class Schedule>
double warm_up_then(const char* name, const Schedule& s, std::uint64_t step, double (*curve)(double, double, double)) {
  require_range(name, s.rate, s.floor);
  if (step < s.warmup) return s.rate * (static_cast<double>(step + 1) / static_cast<double>(s.warmup));
  if (step >= s.total) return s.floor;
  return curve(s.rate, s.floor, static_cast<double>(step - s.warmup) / static_cast<double>(s.total - s.warmup));
}

}  // namespace

double WarmupCosineSchedule::operator()(std::uint64_t step) const {
  return warm_up_then("WarmupCosineSchedule", *this, step, half_cosine);
}

double WarmupLinearSchedule::operator()(std::uint64_t step) const {
  return warm_up_then("WarmupLinearSchedule", *this, step, line);
}

double InverseSquareRootSchedule::operator()(std::uint64_t step) const {
  require_range("InverseSquareRootSchedule", factor, 0);
  require(width > 0, "[InverseSquareRootSchedule] width must be positive, got 0");
  const double n = static_cast<double>(step) + 1, warm = static_cast<double>(std::max<std::uint64_t>(warmup, 1));
  return factor / std::sqrt(static_cast<double>(width)) * std::min(1 / std::sqrt(n), n / (warm * std::sqrt(warm)));
}

double OneCycleSchedule::operator()(std::uint64_t step) const {
  require_range("OneCycleSchedule", rate, 0);
  require(warmup_fraction >= 0 && warmup_fraction <= 1, "[OneCycleSchedule] warmup_fraction must be in [0, 1], got {}",
          warmup_fraction);
  require(start_divisor >= 1 && end_divisor >= 1, "[OneCycleSchedule] divisors must be at least 1, got {} and {}",
          start_divisor, end_divisor);
  const double start = rate / start_divisor, floor = start / end_divisor, s = static_cast<double>(step);
  const double last = static_cast<double>(total) - 1, peak = warmup_fraction * static_cast<double>(total) - 1;
  if (s < peak) return half_cosine(start, rate, s / peak);
  if (s == peak) return rate;
  return s < last ? half_cosine(rate, floor, (s - peak) / (last - peak)) : floor;
}

double StepSchedule::operator()(std::uint64_t step) const {
  require_range("StepSchedule", rate, floor);
  require(size > 0, "[StepSchedule] size must be positive, got 0");
  require(factor >= 0 && factor <= 1, "[StepSchedule] factor must be in [0, 1], got {}", factor);
  return std::max(floor, rate * std::pow(factor, static_cast<double>(step / size)));
}

}  // namespace xtape
