#include <xtape/framework/kernels/rms_norm.hpp>

#include <cmath>

#include <xtape/framework/kernels/column_sums.hpp>

namespace xtape::kernels {

template <class T>
void rms_norm_forward(std::size_t rows, std::size_t columns, const T* x, const T* gain, double eps, T* y, T* saved) {
  for_each_row(rows, columns, [&](std::size_t row) {
    const T* from = x + row * columns;
    T* to = y + row * columns;
    const double squares = sum_of<T>(columns, [&](std::size_t i, auto extent) {
      const Batch<T> value = load(from + i, extent);
      return value * value;
    });
    saved[row] = static_cast<T>(1 / std::sqrt(squares / static_cast<double>(columns) + eps));
    const Batch<T> r(saved[row]);
    sweep<T>(columns, [&](std::size_t i, auto extent) {
      const Batch<T> xhat = load(from + i, extent) * r;
      store(to + i, gain != nullptr ? xhat * load(gain + i, extent) : xhat, extent);
    });
  });
}

template <class T>
void rms_norm_backward_x(std::size_t rows, std::size_t columns, const T* x, const T* gain, const T* saved, const T* dy,
                         T* dx, bool accumulate) {
  for_each_row(rows, columns, [&](std::size_t row) {
    const T *from = x + row * columns, *d = dy + row * columns;
    T* to = dx + row * columns;
    const Batch<T> r(saved[row]);
    const auto g = [&](std::size_t i, auto extent) {
      const Batch<T> value = load(d + i, extent);
      return gain != nullptr ? value * load(gain + i, extent) : value;
    };
    const auto xhat = [&](std::size_t i, auto extent) { return load(from + i, extent) * r; };
    const double product =
        sum_of<T>(columns, [&](std::size_t i, auto extent) { return g(i, extent) * xhat(i, extent); });
    const Batch<T> mean_g_xhat(static_cast<T>(product / static_cast<double>(columns)));
    sweep<T>(columns, [&](std::size_t i, auto extent) {
      put(accumulate, to + i, (g(i, extent) - xhat(i, extent) * mean_g_xhat) * r, extent);
    });
  });
}

template <class T>
void rms_norm_backward_gain(std::size_t rows, std::size_t columns, const T* x, const T* saved, const T* dy, T* dgain,
                            bool accumulate, T* partial) {
  column_sums(rows, columns, dgain, accumulate, partial, [&](std::size_t row, std::size_t i, auto extent) {
    return load(dy + row * columns + i, extent) * load(x + row * columns + i, extent) * Batch<T>(saved[row]);
  });
}

template void rms_norm_forward(std::size_t, std::size_t, const float*, const float*, double, float*, float*);
template void rms_norm_forward(std::size_t, std::size_t, const double*, const double*, double, double*, double*);
template void rms_norm_backward_x(std::size_t, std::size_t, const float*, const float*, const float*, const float*,
                                  float*, bool);
template void rms_norm_backward_x(std::size_t, std::size_t, const double*, const double*, const double*, const double*,
                                  double*, bool);
template void rms_norm_backward_gain(std::size_t, std::size_t, const float*, const float*, const float*, float*, bool,
                                     float*);
template void rms_norm_backward_gain(std::size_t, std::size_t, const double*, const double*, const double*, double*,
                                     bool, double*);

}  // namespace xtape::kernels
