#pragma once
// Elementwise functions of one array.

#include <cstddef>

namespace xtape::kernels {

/// Which function; the formulas stand in unary_functions.hpp.
enum class Unary {
  negate,
  exp,
  log,
  log1p,
  sqrt,
  rsqrt,
  square,
  abs,
  sin,
  cos,
  tanh,
  sigmoid,
  silu,
  softplus,
  relu,
  gelu,
  gelu_tanh,
  clamp,
};
/// A function and, for clamp, its bounds.
struct UnaryFunction {
  Unary kind;
  double low = 0, high = 0;
};

/// y[i] = f(x[i])
template <class T>
void unary_forward(UnaryFunction f, const T* x, T* y, std::size_t n);

/// dx[i] = or += dy[i] f'(x[i]), where y[i] = f(x[i])
template <class T>
void unary_backward(UnaryFunction f, const T* x, const T* y, const T* dy, T* dx, bool accumulate, std::size_t n);

}  // namespace xtape::kernels
