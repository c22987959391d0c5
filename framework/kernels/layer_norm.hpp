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
template <class T>
void layer_norm_backward_x(std::size_t rows, std::size_t columns, const T* x, const T* gain,
                           const LayerNormRow<T>* saved, const T* dy, T* dx, bool accumulate);

/// dgain += sum over rows of dy xhat, dbias += sum over rows of dy. Either may be null. `partial` holds
/// column_sum_pieces(rows) * columns numbers for the time of the call.
template <class T>
void layer_norm_backward_parameters(std::size_t rows, std::size_t columns, const T* x, const LayerNormRow<T>* saved,
                                    const T* dy, T* dgain, bool accumulate_gain, T* dbias, bool accumulate_bias,
                                    T* partial);

}  // namespace xtape::kernels
