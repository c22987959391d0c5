#pragma once
// A projection of what an output differs by from what it was.

#include <algorithm>
#include <cmath>

#include <xtape/framework/train/gradcheck/difference.hpp>
#include <xtape/framework/train/gradcheck/same_bits.hpp>

namespace xtape::detail {

/// Sum of (now - before) w. Numbers that are the same bit for bit carry no rounding errors. Compensated summation
/// (Neumaier 1974): differences of such sums are taken.
class ProjectedChange {
 public:
  void add(double now, double before, double w) {
    if (same_bits(now, before)) return;
    const double term = (now - before) * w, next = sum_ + term;
    lost_ += std::abs(sum_) >= std::abs(term) ? (sum_ - next) + term : (term - next) + sum_;
    sum_ = next;
    magnitude_ += std::max(std::abs(now), std::abs(before)) * std::abs(w);
  }
  Projected result() const { return {sum_ + lost_, magnitude_}; }

 private:
  double sum_ = 0, lost_ = 0, magnitude_ = 0;
};

}  // namespace xtape::detail
