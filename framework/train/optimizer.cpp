#include <xtape/framework/train/optimizer.hpp>

#include <cmath>

#include <xtape/framework/kernels/optimizer.hpp>

namespace xtape {
namespace {

void require_rate(const char* name, double rate) {
  require(rate >= 0 && std::isfinite(rate), "[{}] learning rate must be finite and not negative, got {}", name, rate);
}

}  // namespace

template <class T>
Optimizer<T>::Optimizer(ParameterList<T> parameters, double learning_rate, double weight_decay, Decay decay)
    : parameters_(std::move(parameters)), learning_rate_(learning_rate), weight_decay_(weight_decay), decay_(decay) {
  require_rate("optimizer", learning_rate);
  require(weight_decay >= 0 && std::isfinite(weight_decay),
          "[optimizer] weight decay must be finite and not negative, got {}", weight_decay);
}

template <class T>
void Optimizer<T>::set_learning_rate(double rate) {
  require_rate("set_learning_rate", rate);
  learning_rate_ = rate;
}

template <class T>
std::vector<std::string> Optimizer<T>::decaying() const {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : parameters_)
    if (decay_of(parameter) > 0) names.push_back(name);
  return names;
}

template <class T>
Parameter<T>& Optimizer<T>::add_state(const std::string& name, const Shape& shape) {
  return state_.emplace_back(name, Parameter<T>(shape)).parameter;
}

template <class T>
double Optimizer<T>::decay_of(const Parameter<T>& parameter) const {
  return decay_ == Decay::all || parameter.role() == Role::weight ? weight_decay_ : 0;
}

template <class T>
void Optimizer<T>::require_finite(const char* optimizer) const {
  for (const auto& [name, parameter] : parameters_)
    if (parameter.has_grad() && !parameter.frozen())
      require(std::isfinite(kernels::sum_of_squares(parameter.share().grad_data(), parameter.size())),
              "[{}] expected finite gradients, got infinity, NaN or a square beyond double in the gradient of {}; no "
              "parameter was changed",
              optimizer, name);
}

template <class T>
Sgd<T>::Sgd(ParameterList<T> parameters, SgdOptions options)
    : Optimizer<T>(std::move(parameters), options.learning_rate, options.weight_decay, options.decay),
      options_(options) {
  require(options.momentum >= 0 && options.momentum < 1, "[Sgd] momentum must be in [0, 1), got {}", options.momentum);
  if (options.momentum > 0)
    for (const auto& [name, parameter] : this->parameters_) this->add_state("momentum." + name, parameter.shape());
}

template <class T>
void Sgd<T>::step() {
  this->require_finite("Sgd");
  for (std::size_t i = 0; i < this->parameters_.size(); ++i) {
    Parameter<T>& w = this->parameters_[i].parameter;
    if (!w.has_grad() || w.frozen()) continue;
    T* momentum = options_.momentum > 0 ? this->state_[i].parameter.write_data() : nullptr;
    kernels::sgd_update<T>({this->learning_rate_, options_.momentum, this->decay_of(w)}, w.size(), w.grad_data(),
                           w.write_data(), momentum);
  }
  ++this->steps_;
}

template <class T>
AdamW<T>::AdamW(ParameterList<T> parameters, AdamWOptions options)
    : Optimizer<T>(std::move(parameters), options.learning_rate, options.weight_decay, options.decay),
      options_(options) {
  for (double beta : options.betas) require(beta >= 0 && beta < 1, "[AdamW] betas must be in [0, 1), got {}", beta);
  require(options.eps > 0, "[AdamW] eps must be positive, got {}", options.eps);
  for (const auto& [name, parameter] : this->parameters_) {
    this->add_state("exp_avg." + name, parameter.shape());
    this->add_state("exp_avg_sq." + name, parameter.shape());
  }
}

template <class T>
void AdamW<T>::step() {
  this->require_finite("AdamW");
  const double t = static_cast<double>(++this->steps_);
  const auto [beta1, beta2] = options_.betas;
  for (std::size_t i = 0; i < this->parameters_.size(); ++i) {
    Parameter<T>& w = this->parameters_[i].parameter;
    if (!w.has_grad() || w.frozen()) continue;
    kernels::adamw_update<T>({this->learning_rate_, beta1, beta2, options_.eps, this->decay_of(w),
                              1 - std::pow(beta1, t), 1 - std::pow(beta2, t)},
                             w.size(), w.grad_data(), w.write_data(), this->state_[2 * i].parameter.write_data(),
                             this->state_[2 * i + 1].parameter.write_data());
  }
}

template <class T>
double clip_grad_norm(const ParameterList<T>& list, double max) {
  require(max >= 0, "[clip_grad_norm] max must not be negative, got {}", max);
  const auto counts = [](const Parameter<T>& parameter) { return parameter.has_grad() && !parameter.frozen(); };
  double squares = 0;
  for (const auto& [name, parameter] : list)
    if (counts(parameter)) squares += kernels::sum_of_squares(parameter.share().grad_data(), parameter.size());
  const double norm = std::sqrt(squares);
  const double coefficient = max / (norm + 1e-6);
  if (!std::isfinite(norm) || coefficient >= 1) return norm;
  for (const auto& [name, parameter] : list)
    if (counts(parameter))
      kernels::scale_in_place(parameter.share().grad_data(), parameter.size(), static_cast<T>(coefficient));
  return norm;
}

template class Optimizer<float>;
template class Optimizer<double>;
template class Sgd<float>;
template class Sgd<double>;
template class AdamW<float>;
template class AdamW<double>;
template double clip_grad_norm(const ParameterList<float>&, double);
template double clip_grad_norm(const ParameterList<double>&, double);

}  // namespace xtape
