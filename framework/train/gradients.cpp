#include <xtape/framework/train/gradients.hpp>

#include <algorithm>
#include <cmath>

#include <xtape/framework/kernels/optimizer.hpp>

namespace xtape {
namespace {

/// f(gradient, size) for each parameter that has a gradient and is not frozen, once even if it is listed twice.
template <class T, class F>
void for_each_trained(const ParameterList<T>& list, F f) {
  for (auto entry = list.begin(); entry != list.end(); ++entry) {
    Parameter<T> parameter = entry->parameter.share();
    const auto same = [&](const NamedParameter<T>& earlier) { return earlier.parameter.is(parameter); };
    if (parameter.has_grad() && !parameter.frozen() && std::none_of(list.begin(), entry, same))
      f(parameter.grad_data(), parameter.size());
  }
}

}  // namespace

template <class T>
double clip_grad_norm(const ParameterList<T>& list, double max) {
  require(max >= 0, "[clip_grad_norm] max must not be negative, got {}", max);
  double squares = 0;
  for_each_trained(list, [&](T* grad, std::size_t size) { squares += kernels::sum_of_squares(grad, size); });
  const double norm = std::sqrt(squares);
  const double coefficient = max / (norm + 1e-6);
  if (!std::isfinite(norm) || coefficient >= 1) return norm;
  for_each_trained(
      list, [&](T* grad, std::size_t size) { kernels::scale_in_place(grad, size, static_cast<T>(coefficient)); });
  return norm;
}

template <class T>
void divide_grad(const ParameterList<T>& list, std::size_t count) {
  if (count == 0) return;
  const T factor = static_cast<T>(1 / static_cast<double>(count));
  for_each_trained(list, [&](T* grad, std::size_t size) { kernels::scale_in_place(grad, size, factor); });
}

template double clip_grad_norm(const ParameterList<float>&, double);
template double clip_grad_norm(const ParameterList<double>&, double);
template void divide_grad(const ParameterList<float>&, std::size_t);
template void divide_grad(const ParameterList<double>&, std::size_t);

}  // namespace xtape
