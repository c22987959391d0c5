#include <xtape/framework/kernels/copy.hpp>

#include <algorithm>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {
namespace {

template <bool accumulate, class T>
void copy_run(std::size_t n, const T* x, std::size_t x_step, T* y, std::size_t y_step) {
  if (x_step == 1 && y_step == 1) {
    sweep<T>(n, [&](std::size_t i, auto extent) { put<accumulate>(y + i, load(x + i, extent), extent); });
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (accumulate)
        y[i * y_step] += x[i * x_step];
      else
        y[i * y_step] = x[i * x_step];
    }
  }
}

}  // namespace

template <class T>
void strided_copy(const std::array<std::size_t, 4>& extent, const T* x, const Strides& x_stride, T* y,
                  const Strides& y_stride, bool accumulate) {
  const std::size_t rows = extent[0] * extent[1] * extent[2], columns = extent[3];
  if (rows * columns == 0) return;
  parallel_chunks(rows, std::max<std::size_t>(1, 8192 / columns), [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) {
      const std::size_t i2 = row % extent[2], i1 = row / extent[2] % extent[1], i0 = row / extent[2] / extent[1];
      const T* from = x + i0 * x_stride[0] + i1 * x_stride[1] + i2 * x_stride[2];
      T* to = y + i0 * y_stride[0] + i1 * y_stride[1] + i2 * y_stride[2];
      if (accumulate)
        copy_run<true>(columns, from, x_stride[3], to, y_stride[3]);
      else
        copy_run<false>(columns, from, x_stride[3], to, y_stride[3]);
    }
  });
}

template void strided_copy(const std::array<std::size_t, 4>&, const float*, const Strides&, float*, const Strides&,
                           bool);
template void strided_copy(const std::array<std::size_t, 4>&, const double*, const Strides&, double*, const Strides&,
                           bool);

}  // namespace xtape::kernels
