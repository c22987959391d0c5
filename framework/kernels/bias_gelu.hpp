#pragma once
// What stands between the two products of a feed-forward layer, beside its bias: gelu, and both backward.

#include <cstddef>

namespace xtape::kernels {

/// x Phi(x), or its approximation by tanh.
enum class GeluForm { exact, by_tanh };

/// Of a block (rows, columns) whose rows are `stride` apart: y = gelu(h) and, unless slope is null, slope = gelu'(h),
/// by one exponential. y or slope, not both, may be h itself. Runs on the calling thread.
template <class T>
void gelu_of_block(GeluForm form, std::size_t rows, std::size_t columns, std::size_t stride, const T* h, T* y,
                   T* slope);

/// dh = dy slope and, unless dbias is null, dbias = or += the sum of dh over rows. `partial` holds
/// column_sum_pieces(rows) * columns numbers for the time of the call.
template <class T>
void bias_gelu_backward(std::size_t rows, std::size_t columns, const T* slope, const T* dy, T* dh, T* dbias,
                        bool accumulate_bias, T* partial);

}  // namespace xtape::kernels
