#include <xtape/framework/kernels/bias_gelu.hpp>

#include <xtape/framework/kernels/column_sums.hpp>
#include <xtape/framework/kernels/unary_functions.hpp>

namespace xtape::kernels {
namespace {

template <class Function, class T>
void forward(Function, std::size_t rows, std::size_t columns, std::size_t stride, const T* h, T* y, T* slope) {
  for (std::size_t row = 0; row < rows; ++row, h += stride, y += stride)
    sweep<T>(columns, [&](std::size_t i, auto extent) {
      const auto result = Function::value_and_slope(load(h + i, extent));
      store(y + i, result.value, extent);
      if (slope != nullptr) store(slope + row * stride + i, result.slope, extent);
    });
}

}  // namespace

template <class T>
void gelu_of_block(GeluForm form, std::size_t rows, std::size_t columns, std::size_t stride, const T* h, T* y,
                   T* slope) {
  if (form == GeluForm::exact)
    forward(Gelu{}, rows, columns, stride, h, y, slope);
  else
    forward(GeluTanh{}, rows, columns, stride, h, y, slope);
}

template <class T>
void bias_gelu_backward(std::size_t rows, std::size_t columns, const T* slope, const T* dy, T* dh, T* dbias,
                        bool accumulate_bias, T* partial) {
  const auto product = [&](std::size_t row, std::size_t i, auto extent) {
    const std::size_t at = row * columns + i;
    const Batch<T> value = load(dy + at, extent) * load(slope + at, extent);
    store(dh + at, value, extent);
    return value;
  };
  if (dbias != nullptr)
    column_sums(rows, columns, dbias, accumulate_bias, partial, product);
  else
    for_each_row(rows, columns, [&](std::size_t row) {
      sweep<T>(columns, [&](std::size_t i, auto extent) { product(row, i, extent); });
    });
}

template void gelu_of_block(GeluForm, std::size_t, std::size_t, std::size_t, const float*, float*, float*);
template void gelu_of_block(GeluForm, std::size_t, std::size_t, std::size_t, const double*, double*, double*);
template void bias_gelu_backward(std::size_t, std::size_t, const float*, const float*, float*, float*, bool, float*);
template void bias_gelu_backward(std::size_t, std::size_t, const double*, const double*, double*, double*, bool,
                                 double*);

}  // namespace xtape::kernels
