#pragma once
// Learning rates as closed functions of the step, the first update being step 0. They hold no state, so a resume cannot
// lose any.

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

}  // namespace xtape
