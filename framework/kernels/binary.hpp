#pragma once
// Elementwise arithmetic of two arrays that broadcast.

#include <array>
#include <cstddef>

#include <xtape/framework/base/shape.hpp>

namespace xtape::kernels {

/// Which function; the formulas stand in binary_functions.hpp.
enum class Binary {
  add,
  subtract,
  multiply,
  divide,
  power,
  maximum,
  minimum,
  swiglu,
  squared_error,
  absolute_error,
  bce_with_logits,
  kl_divergence,
};
enum class Side { left, right };

/// How two operands are walked to make a result: extents of the result and the operands' strides, 0 where an operand is
/// repeated. Axes that can be walked as one are merged; there are always four.
struct Broadcast {
  std::array<std::size_t, 4> extent, left, right;
};
Broadcast plan_broadcast(const Shape& result, const Shape& left, const Shape& right);

/// y = a op b
template <class T>
void binary_forward(Binary op, const Broadcast& plan, const T* a, const T* b, T* y);

/// g = or += dy dy/da (or dy/db), with the shape of y: the gradient of an operand before it is summed over the axes
/// along which that operand was repeated.
template <class T>
void binary_backward(Binary op, Side side, const Broadcast& plan, const T* a, const T* b, const T* dy, T* g,
                     bool accumulate);

}  // namespace xtape::kernels
