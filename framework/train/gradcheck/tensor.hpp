#pragma once
// One tensor under check: its elements, or a sample of them and random directions through all.

#include <xtape/framework/train/gradcheck/rounding.hpp>

namespace xtape::detail {

/// How much of a large tensor is looked at.
struct Sampling {
  std::size_t samples = 0;  // elements; 0: all of a tensor of up to whole_limit, of a larger one default_samples
  std::size_t directions = 2;

  static constexpr std::size_t whole_limit = 1000, default_samples = 100;
};

/// Judges tensor i, given what is claimed for both projections and what rounding does to it. Of a tensor of which a
/// sample is checked, the element with the largest gradient is in it; and where a random direction disagrees, halving
/// it finds an element that does.
void check_tensor(Checked& checked, std::size_t i, const Pair<std::vector<double>>& analytic, const Middle& middle,
                  Rounding& rounding, const Sampling& sampling, TensorReport& report);

}  // namespace xtape::detail
