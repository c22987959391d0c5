#include <xtape/framework/train/require_finite.hpp>

#include <algorithm>
#include <cmath>

#include <xtape/framework/kernels/optimizer.hpp>
#include <xtape/framework/train/gradients.hpp>

namespace xtape {
namespace {

template <class T>
std::string number_text(T x) {
  return std::isnan(x) ? "NaN" : x > 0 ? "inf" : "-inf";
}

/// The place of an element in row-major order: "(0, 2)".
std::string place(std::size_t index, const Shape& shape) {
  Shape at = shape;
  for (std::size_t axis = shape.rank(); axis-- > 0; index /= shape[axis]) at[axis] = index % shape[axis];
  return to_string(at);
}

/// "[exp] (2, 3) in layer blocks.0".
template <class T>
std::string op_text(Var<T> x) {
  const std::string layer = x.layer();
  return fmt::format("[{}] {}{}", x.op(), x.shape(), layer.empty() ? "" : " in layer " + layer);
}

/// What holds the number, with the parameter's name.
template <class T>
std::string holder_text(const NonFinite<T>& found, const ParameterList<T>& list) {
  for (const auto& [name, parameter] : list)
    if (found.parameter && parameter.is(*found.parameter))
      return fmt::format("the parameter {} {}", name, parameter.shape());
  return op_text(found.holder);
}

template <class T>
std::string number_at(const NonFinite<T>& found) {
  return fmt::format("{} at {}", number_text(found.number), place(found.index, found.holder.shape()));
}

/// "the first is inf at (0, 2) of [exp] (2, 3) in layer blocks.0, whose inputs are finite".
template <class T>
std::string value_text(const NonFinite<T>& found, const ParameterList<T>& list) {
  const std::string origin = found.given    ? ", which was given so"
                             : found.hiding ? ", which came of -inf in " + op_text(*found.hiding)
                                            : ", whose inputs are finite";
  return fmt::format("the first is {} of {}{}", number_at(found), holder_text(found, list), origin);
}

template <class T>
std::string gradient_text(const NonFinite<T>& found, const ParameterList<T>& list) {
  return fmt::format("the first is {} of the gradient that the backward of {} gave to {}", number_at(found),
                     op_text(*found.passed_by), holder_text(found, list));
}

}  // namespace

template <class T>
double require_finite(Var<T> loss, const ParameterList<T>& list) {
  Tape<T>& tape = tape_of("require_finite", loss);
  if (!std::isfinite(loss.item()))
    raise("[require_finite] expected a finite loss in step {}, got {}; {}", tape.step(), number_text(loss.item()),
          value_text(*tape.find_non_finite(loss), list));
  const double norm = grad_norm(list);
  if (std::isfinite(norm)) return norm;
  const auto bad = std::find_if(list.begin(), list.end(), [](const NamedParameter<T>& entry) {
    Parameter<T> parameter = entry.parameter.share();
    return parameter.has_grad() && !parameter.frozen() && !kernels::finite(parameter.grad_data(), parameter.size());
  });
  if (bad == list.end()) return norm;  // of numbers whose squares are too large
  const auto found = tape.find_non_finite_gradient(loss);
  raise("[require_finite] expected finite gradients in step {}, got inf or NaN in that of {}; {}", tape.step(),
        bad->name, found ? gradient_text(*found, list) : "this loss gives none, so it was there before its backward");
}

template double require_finite(Var<float>, const ParameterList<float>&);
template double require_finite(Var<double>, const ParameterList<double>&);

}  // namespace xtape
