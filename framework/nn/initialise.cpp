#include <xtape/framework/nn/initialise.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace xtape {
namespace {

thread_local bool draws_nothing = false;

template <class T>
void generate(Parameter<T>& parameter, auto number) {
  if (!draws_nothing)
    std::generate_n(parameter.write_data(), parameter.size(), [&] { return static_cast<T>(number()); });
}

}  // namespace

NoInitialValues::NoInitialValues() : before_(std::exchange(draws_nothing, true)) {}
NoInitialValues::~NoInitialValues() { draws_nothing = before_; }

template <class T>
void fill(Parameter<T>& parameter, T value) {
  std::fill_n(parameter.write_data(), parameter.size(), value);
}

template <class T>
void init_normal(Parameter<T>& parameter, double standard_deviation, Rng& rng) {
  generate(parameter, [&] { return standard_deviation * rng.normal(); });
}

namespace {
template <class T>
void require_matrix(const char* name, const Parameter<T>& weight) {
  require<ShapeError>(weight.shape().rank() == 2, "[{}] expected a weight (out, in), got {}", name, weight.shape());
}
}  // namespace

template <class T>
void init_scaled_normal(Parameter<T>& weight, Rng& rng) {
  require_matrix("init_scaled_normal", weight);
  init_normal(weight, 1 / std::sqrt(static_cast<double>(weight.shape()[1])), rng);
}

template <class T>
void init_xavier_uniform(Parameter<T>& weight, Rng& rng) {
  require_matrix("init_xavier_uniform", weight);
  const double bound = std::sqrt(6 / static_cast<double>(weight.shape()[0] + weight.shape()[1]));
  generate(weight, [&] { return bound * (2 * rng.uniform() - 1); });
}

template <class T>
void init_gpt(const ParameterList<T>& list, std::size_t layers, Rng& rng) {
  constexpr double deviation = 0.02;
  require(layers > 0, "[init_gpt] expected at least one layer, got 0");
  for (const auto& [name, handle] : list) {
    Parameter<T> parameter = handle.share();
    if (parameter.role() == Role::bias) {
      fill(parameter, T(0));
    } else if (parameter.role() == Role::gain) {
      fill(parameter, T(1));
    } else {
      const bool residual = name.ends_with("out_proj.weight") || name.ends_with("linear2.weight");
      init_normal(parameter, residual ? deviation / std::sqrt(2.0 * static_cast<double>(layers)) : deviation, rng);
    }
  }
}

template void fill(Parameter<float>&, float);
template void fill(Parameter<double>&, double);
template void init_normal(Parameter<float>&, double, Rng&);
template void init_normal(Parameter<double>&, double, Rng&);
template void init_scaled_normal(Parameter<float>&, Rng&);
template void init_scaled_normal(Parameter<double>&, Rng&);
template void init_xavier_uniform(Parameter<float>&, Rng&);
template void init_xavier_uniform(Parameter<double>&, Rng&);
template void init_gpt(const ParameterList<float>&, std::size_t, Rng&);
template void init_gpt(const ParameterList<double>&, std::size_t, Rng&);

}  // namespace xtape
