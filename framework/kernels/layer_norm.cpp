#include <xtape/framework/kernels/layer_norm.hpp>

#include <cmath>

#include <xtape/framework/kernels/column_sums.hpp>

namespace xtape::kernels {

template <class T>
void layer_norm_forward(std::size_t rows, std::size_t columns, const T* x, const T* gain, const T* bias, double eps,
                        T* y, LayerNormRow<T>* saved) {
  const double n = static_cast<double>(columns);
  for_each_row(rows, columns, [&](std::size_t row) {
    const T* from = x + row * columns;
    T* to = y + row * columns;
    // E[x^2] - E[x]^2 cancels far from zero. The row is first shifted by its mean as rounded to T; what is left of the
    // mean is small and is taken off afterwards, so that a constant row gives exactly 0.
    const T shift =
        static_cast<T>(sum_of<T>(columns, [&](std::size_t i, auto extent) { return load(from + i, extent); }) / n);
    const Batch<T> s(shift);
    const T mean = static_cast<T>(
        sum_of<T>(columns, [&](std::size_t i, auto extent) { return cut(load(from + i, extent) - s, extent); }) / n);
    const Batch<T> m(mean);
    const double variance = sum_of<T>(columns,
                                      [&](std::size_t i, auto extent) {
                                        const Batch<T> d = (load(from + i, extent) - s) - m;
                                        return cut(d * d, extent);
                                      }) /
                            n;
    const T inverse_deviation = static_cast<T>(1 / std::sqrt(variance + eps));
    saved[row] = {shift, mean, inverse_deviation};
    const Batch<T> r(inverse_deviation);
    sweep<T>(columns, [&](std::size_t i, auto extent) {
      Batch<T> value = ((load(from + i, extent) - s) - m) * r;
      if (gain != nullptr) value *= load(gain + i, extent);
      if (bias != nullptr) value += load(bias + i, extent);
      store(to + i, value, extent);
    });
  });
}

template <class T>
void layer_norm_backward(std::size_t rows, std::size_t columns, const T* x, const T* gain, const LayerNormRow<T>* saved,
                         const T* dy, T* dx, bool accumulate, T* dgain, bool accumulate_gain, T* dbias,
                         bool accumulate_bias, T* partial) {
  const double n = static_cast<double>(columns);
  parallel_chunks(rows, rows_per_piece, [&](std::size_t begin, std::size_t end) {
    T *const gain_sums = partial + begin / rows_per_piece * 2 * columns, *const bias_sums = gain_sums + columns;
    for (std::size_t row = begin; row < end; ++row) {
      const T *from = x + row * columns, *d = dy + row * columns;
      const Batch<T> s(saved[row].shift), m(saved[row].mean), r(saved[row].inverse_deviation);
      const auto xhat = [&](std::size_t i, auto extent) { return ((load(from + i, extent) - s) - m) * r; };
      const auto g = [&](std::size_t i, auto extent) {
        const Batch<T> value = load(d + i, extent);
        return gain != nullptr ? value * load(gain + i, extent) : value;
      };
      if (dx != nullptr) {
        const auto [sum_g, sum_g_xhat] = two_sums_of<T>(columns, [&](std::size_t i, auto extent) {
          const Batch<T> value = g(i, extent);
          return std::pair(value, value * xhat(i, extent));
        });
        const Batch<T> mean_g(static_cast<T>(sum_g / n)), mean_g_xhat(static_cast<T>(sum_g_xhat / n));
        sweep<T>(columns, [&](std::size_t i, auto extent) {
          put(accumulate, dx + row * columns + i, (g(i, extent) - mean_g - xhat(i, extent) * mean_g_xhat) * r, extent);
        });
      }
      const bool later = row > begin;
      if (dgain != nullptr)
        sweep<T>(columns, [&](std::size_t i, auto extent) {
          put(later, gain_sums + i, load(d + i, extent) * xhat(i, extent), extent);
        });
      if (dbias != nullptr)
        sweep<T>(columns, [&](std::size_t i, auto extent) { put(later, bias_sums + i, load(d + i, extent), extent); });
    }
  });
  const std::size_t pieces = column_sum_pieces(rows);
  if (dgain != nullptr) add_pieces(pieces, columns, partial, 2 * columns, dgain, accumulate_gain);
  if (dbias != nullptr) add_pieces(pieces, columns, partial + columns, 2 * columns, dbias, accumulate_bias);
}

template void layer_norm_forward(std::size_t, std::size_t, const float*, const float*, const float*, double, float*,
                                 LayerNormRow<float>*);
template void layer_norm_forward(std::size_t, std::size_t, const double*, const double*, const double*, double, double*,
                                 LayerNormRow<double>*);
template void layer_norm_backward(std::size_t, std::size_t, const float*, const float*, const LayerNormRow<float>*,
                                  const float*, float*, bool, float*, bool, float*, bool, float*);
template void layer_norm_backward(std::size_t, std::size_t, const double*, const double*, const LayerNormRow<double>*,
                                  const double*, double*, bool, double*, bool, double*, bool, double*);

}  // namespace xtape::kernels
