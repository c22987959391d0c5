#pragma once
// Learning rates as closed functions of the step, the first update being step 0. They hold no state, so a resume cannot
// lose any. None exceeds its peak or falls below its floor, and after the peak none rises.
//
// A rate or floor that is negative or not finite, a floor above the rate, or a number that divides and is 0 is an
// Error.

#include <cstdint>

namespace xtape {

struct ConstantSchedule {
  double rate = 1e-3;
  double operator()(std::uint64_t) const { return rate; }
};

/// Linear warm-up, then half a cosine (Loshchilov and Hutter 2017, equation 5, without restarts):
///   rate (s + 1) / warmup                                                       for s < warmup
///   floor + (rate - floor) (1 + cos(pi (s - warmup) / (total - warmup))) / 2    up to s = total
///   floor                                                                       from then on
struct WarmupCosineSchedule {
  double rate = 1e-3;
  std::uint64_t warmup = 0, total = 0;
  double floor = 0;
  double operator()(std::uint64_t step) const;
};

/// Linear warm-up, then a straight line down:
///   rate (s + 1) / warmup                                                       for s < warmup
///   rate + (floor - rate) (s - warmup) / (total - warmup)                       up to s = total
///   floor                                                                       from then on
/// With warmup 0 it is PyTorch's LinearLR from 1 to floor / rate.
struct WarmupLinearSchedule {
  double rate = 1e-3;
  std::uint64_t warmup = 0, total = 0;
  double floor = 0;
  double operator()(std::uint64_t step) const;
};

/// The inverse square root, known as Noam (Vaswani et al. 2017, section 5.3):
///   factor width^-0.5 min((s + 1)^-0.5, (s + 1) warmup^-1.5)
/// It peaks at factor (width warmup)^-0.5 in step warmup - 1; warmup 0 is warmup 1. It has no end and no floor but 0.
struct InverseSquareRootSchedule {
  double factor = 1;
  std::uint64_t width = 512, warmup = 4000;
  double operator()(std::uint64_t step) const;
};

/// One cycle (Smith and Topin 2018) with two halves of a cosine; the numbers are those of PyTorch's OneCycleLR:
///   from rate / start_divisor up to rate        over the first warmup_fraction total - 1 steps
///   from rate down to the floor                 up to s = total - 1
///   the floor                                   from then on, where PyTorch throws
/// The floor is rate / (start_divisor end_divisor). Where warmup_fraction total is less than 1 there is no way up, and
/// the way down begins that part of a step before step 0.
struct OneCycleSchedule {
  double rate = 1e-3;
  std::uint64_t total = 0;
  double warmup_fraction = 0.3;
  double start_divisor = 25, end_divisor = 1e4;
  double operator()(std::uint64_t step) const;
};

/// A flight of stairs, PyTorch's StepLR: max(floor, rate factor^n) with n = s / size, rounded down. The factor is in
/// [0, 1].
struct StepSchedule {
  double rate = 1e-3;
  std::uint64_t size = 1;
  double factor = 0.1;
  double floor = 0;
  double operator()(std::uint64_t step) const;
};

}  // namespace xtape
