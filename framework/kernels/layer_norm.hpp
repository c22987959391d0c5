#pragma once
// Layer normalisation over rows (Ba, Kiros, Hinton 2016, section 3).

#include <cstddef>

namespace xtape::kernels {

/// Numbers saved for each row.
template <class T>
struct LayerNormRow {
  T shift, mean, inverse_deviation;  // x is normalised as ((x - shift) - mean) * inverse_deviation
};

/// y = gain (x - mean) / sqrt(variance + eps) + bias; gain and bias (columns,) may be null.
template <class T>
void layer_norm_forward(std::size_t rows, std::size_t columns, const T* x, const T* gain, const T* bias, double eps,
                        T* y, LayerNormRow<T>* saved);

/// With xhat = (x - mean) / sqrt(variance + eps) and g = dy gain:
///   dx = or += (g - mean(g) - xhat mean(g xhat)) / sqrt(variance + eps)
///   dgain = or += sum over rows of dy xhat, dbias = or += sum over rows of dy
/// in one pass over the rows. Any of the three may be null. `partial` holds 2 * column_sum_pieces(rows) * columns
/// numbers for the time of the call.
template <class T>
void layer_norm_backward(std::size_t rows, std::size_t columns, const T* x, const T* gain, const LayerNormRow<T>* saved,
                         const T* dy, T* dx, bool accumulate, T* dgain, bool accumulate_gain, T* dbias,
                         bool accumulate_bias, T* partial);

}  // namespace xtape::kernels
