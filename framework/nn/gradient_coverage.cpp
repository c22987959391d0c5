#include <xtape/framework/nn/gradient_coverage.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace xtape {

template <class T>
GradientCoverage gradient_coverage(const ParameterList<T>& list) {
  GradientCoverage coverage;
  for (const auto& [name, handle] : list) {
    Parameter<T> parameter = handle.share();
    if (parameter.frozen()) {
      coverage.frozen.push_back(name);
    } else if (!parameter.has_grad()) {
      coverage.none.push_back(name);
    } else {
      const T* grad = parameter.grad_data();
      const bool zero = std::all_of(grad, grad + parameter.size(), [](T g) { return g == 0; });
      (zero && parameter.size() > 0 ? coverage.zero : coverage.reached).push_back(name);
    }
  }
  return coverage;
}

std::string to_string(const GradientCoverage& coverage) {
  const std::size_t all =
      coverage.reached.size() + coverage.zero.size() + coverage.none.size() + coverage.frozen.size();
  std::string text = fmt::format("Gradients reached {} of {} parameters", coverage.reached.size(), all);
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) text += fmt::format("; {} {}", what, fmt::join(names, ", "));
  };
  add("they are 0 everywhere in", coverage.zero);
  add("none came to", coverage.none);
  add("frozen:", coverage.frozen);
  return text + ".";
}

template GradientCoverage gradient_coverage(const ParameterList<float>&);
template GradientCoverage gradient_coverage(const ParameterList<double>&);

}  // namespace xtape
