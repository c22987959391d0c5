#pragma once
// Elementwise functions of one array.

#include <cstddef>

namespace xtape::kernels {

enum class Unary { negate, exp, log, tanh, relu, gelu };

/// y[i] = f(x[i])
template <class T>
void unary_forward(Unary f, const T* x, T* y, std::size_t n);

/// dx[i] = or += dy[i] f'(x[i]), where y[i] = f(x[i])
template <class T>
void unary_backward(Unary f, const T* x, const T* y, const T* dy, T* dx, bool accumulate, std::size_t n);

}  // namespace xtape::kernels
