#pragma once
// Root mean square normalisation of rows.

#include <cstddef>

namespace xtape::kernels {

/// y = x r gain with r = 1 / sqrt(mean(x^2) + eps), row by row; r is saved for backward. gain may be null.
template <class T>
void rms_norm_forward(std::size_t rows, std::size_t columns, const T* x, const T* gain, double eps, T* y, T* saved);

/// dx = or += r (g - xhat mean(g xhat)), where g = dy gain and xhat = x r
template <class T>
void rms_norm_backward_x(std::size_t rows, std::size_t columns, const T* x, const T* gain, const T* saved, const T* dy,
                         T* dx, bool accumulate);

/// dgain = or += sum over the rows of dy xhat. `partial` holds column_sum_pieces(rows) * columns numbers for the time
/// of the call.
template <class T>
void rms_norm_backward_gain(std::size_t rows, std::size_t columns, const T* x, const T* saved, const T* dy, T* dgain,
                            bool accumulate, T* partial);

}  // namespace xtape::kernels
