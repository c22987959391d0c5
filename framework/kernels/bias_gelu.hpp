#pragma once
// What stands between two products of a feed-forward layer: a bias on every row, and gelu. One pass over the rows each
// way, beside the products themselves.

#include <cstddef>

namespace xtape::kernels {

/// x Phi(x), or its approximation by tanh.
enum class GeluForm { exact, by_tanh };

/// y = gelu(h + bias) and, unless slope is null, slope = gelu'(h + bias), by one exponential. h, y and slope
/// (rows, columns); y or slope, not both, may be h itself; bias (columns,) may be null.
template <class T>
void bias_gelu_forward(GeluForm form, std::size_t rows, std::size_t columns, const T* h, const T* bias, T* y, T* slope);

/// dh = dy slope and, unless dbias is null, dbias = or += the sum of dh over rows. `partial` holds
/// column_sum_pieces(rows) * columns numbers for the time of the call.
template <class T>
void bias_gelu_backward(std::size_t rows, std::size_t columns, const T* slope, const T* dy, T* dh, T* dbias,
                        bool accumulate_bias, T* partial);

}  // namespace xtape::kernels
