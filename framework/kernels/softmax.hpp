#pragma once
// Softmax and its logarithm over rows.

#include <cstddef>

namespace xtape::kernels {

/// y = exp(x - max) / sum exp(x - max), row by row
template <class T>
void softmax_forward(std::size_t rows, std::size_t columns, const T* x, T* y);
/// dx = or += y (dy - sum(dy y))
template <class T>
void softmax_backward(std::size_t rows, std::size_t columns, const T* y, const T* dy, T* dx, bool accumulate);

/// y = x - max - log sum exp(x - max), row by row
template <class T>
void log_softmax_forward(std::size_t rows, std::size_t columns, const T* x, T* y);
/// dx = or += dy - exp(y) sum(dy)
template <class T>
void log_softmax_backward(std::size_t rows, std::size_t columns, const T* y, const T* dy, T* dx, bool accumulate);

}  // namespace xtape::kernels
