#pragma once
// The largest elements along axes.

#include <xtape/framework/kernels/reduce.hpp>

namespace xtape::kernels {

/// y = max of x over the reduced axes, NaN if there is one.
template <class T>
void max_forward(const Reduction& plan, const T* x, T* y);

/// dx = or += dy / count where x equals its maximum y, which `count` elements do, 0 elsewhere. `counts` holds as many
/// numbers as y for the time of the call.
template <class T>
void max_backward(const Reduction& plan, const T* x, const T* y, const T* dy, T* dx, bool accumulate, T* counts);

}  // namespace xtape::kernels
