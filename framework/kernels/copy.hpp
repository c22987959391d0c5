#pragma once
// Copies between arrays with other strides: transpose, slice, concat and their reverses.

#include <array>
#include <cstddef>

namespace xtape::kernels {

using Strides = std::array<std::size_t, 4>;

/// y[i . y_stride] = or += x[i . x_stride] for all four-dimensional i below `extent`.
template <class T>
void strided_copy(const std::array<std::size_t, 4>& extent, const T* x, const Strides& x_stride, T* y,
                  const Strides& y_stride, bool accumulate);

}  // namespace xtape::kernels
