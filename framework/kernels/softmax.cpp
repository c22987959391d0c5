#include <xtape/framework/kernels/softmax.hpp>

#include <cmath>

#include <xtape/framework/kernels/rows.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {
template <class T>
void softmax_forward(std::size_t rows, std::size_t columns, const T* x, T* y) {
  for_each_row(rows, columns, [&](std::size_t row) {
    const T* from = x + row * columns;
    T* to = y + row * columns;
    const Batch<T> largest(max_of(from, columns));
    const double sum = sum_of<T>(columns, [&](std::size_t i, auto extent) {
      const Batch<T> e = xsimd::exp(load(from + i, extent) - largest);
      store(to + i, e, extent);
      return cut(e, extent);
    });
    const Batch<T> factor(static_cast<T>(1 / sum));
    sweep<T>(columns, [&](std::size_t i, auto extent) { store(to + i, load(to + i, extent) * factor, extent); });
  });
}

template <class T>
void softmax_backward(std::size_t rows, std::size_t columns, const T* y, const T* dy, T* dx, bool accumulate) {
  for_each_row(rows, columns, [&](std::size_t row) {
    const T *p = y + row * columns, *d = dy + row * columns;
    T* to = dx + row * columns;
    const Batch<T> dot(static_cast<T>(
        sum_of<T>(columns, [&](std::size_t i, auto extent) { return load(p + i, extent) * load(d + i, extent); })));
    sweep<T>(columns, [&](std::size_t i, auto extent) {
      put(accumulate, to + i, load(p + i, extent) * (load(d + i, extent) - dot), extent);
    });
  });
}

template <class T>
void log_softmax_forward(std::size_t rows, std::size_t columns, const T* x, T* y) {
  for_each_row(rows, columns, [&](std::size_t row) {
    const T* from = x + row * columns;
    T* to = y + row * columns;
    const Batch<T> largest(max_of(from, columns));
    const double sum = sum_of<T>(
        columns, [&](std::size_t i, auto extent) { return cut(xsimd::exp(load(from + i, extent) - largest), extent); });
    const Batch<T> log_sum(static_cast<T>(std::log(sum)));
    sweep<T>(columns,
             [&](std::size_t i, auto extent) { store(to + i, load(from + i, extent) - largest - log_sum, extent); });
  });
}

template <class T>
void log_softmax_backward(std::size_t rows, std::size_t columns, const T* y, const T* dy, T* dx, bool accumulate) {
  for_each_row(rows, columns, [&](std::size_t row) {
    const T *l = y + row * columns, *d = dy + row * columns;
    T* to = dx + row * columns;
    const Batch<T> sum(
        static_cast<T>(sum_of<T>(columns, [&](std::size_t i, auto extent) { return load(d + i, extent); })));
    sweep<T>(columns, [&](std::size_t i, auto extent) {
      const Batch<T> value = load(d + i, extent) - xsimd::exp(load(l + i, extent)) * sum;
      put(accumulate, to + i, value, extent);
    });
  });
}

template void softmax_forward(std::size_t, std::size_t, const float*, float*);
template void softmax_forward(std::size_t, std::size_t, const double*, double*);
template void softmax_backward(std::size_t, std::size_t, const float*, const float*, float*, bool);
template void softmax_backward(std::size_t, std::size_t, const double*, const double*, double*, bool);
template void log_softmax_forward(std::size_t, std::size_t, const float*, float*);
template void log_softmax_forward(std::size_t, std::size_t, const double*, double*);
template void log_softmax_backward(std::size_t, std::size_t, const float*, const float*, float*, bool);
template void log_softmax_backward(std::size_t, std::size_t, const double*, const double*, double*, bool);

}  // namespace xtape::kernels
