#pragma once
// Sums over axes, and their reverse: spreading over axes.

#include <array>
#include <cstddef>

#include <xtape/framework/base/shape.hpp>

namespace xtape::kernels {

/// A row-major array seen as (kept, summed, kept, summed, kept): neighbouring axes of one kind are merged.
struct Reduction {
  std::array<std::size_t, 5> extent;
};
/// summed[axis] tells which axes of x are summed.
Reduction plan_reduction(const Shape& x, const std::array<bool, Shape::max_rank>& summed);
/// For a gradient of the broadcast shape that is to be summed to the shape of an operand.
Reduction plan_sum_to(const Shape& broadcast, const Shape& operand);

/// y = or += scale * (sum of x over the summed axes)
template <class T>
void sum_forward(const Reduction& plan, const T* x, T* y, T scale, bool accumulate);

/// dx = or += scale * dy, repeated along the summed axes
template <class T>
void sum_backward(const Reduction& plan, const T* dy, T* dx, T scale, bool accumulate);

}  // namespace xtape::kernels
