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
  require(!options.nesterov || options.momentum > 0, "[Sgd] nesterov needs a positive momentum, got {}",
          options.momentum);
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
    kernels::sgd_update<T>({this->learning_rate_, options_.momentum, this->decay_of(w), options_.nesterov}, w.size(),
                           w.grad_data(), w.write_data(), momentum);
  }
  ++this->steps_;
}

template <class T>
template <class Options>
AdamMoments<T>::AdamMoments(const char* name, ParameterList<T> parameters, const Options& options, bool decoupled)
    : Optimizer<T>(std::move(parameters), options.learning_rate, options.weight_decay, options.decay),
      settings_{options.betas, options.eps, decoupled} {
  for (double beta : options.betas) require(beta >= 0 && beta < 1, "[{}] betas must be in [0, 1), got {}", name, beta);
  require(options.eps > 0, "[{}] eps must be positive, got {}", name, options.eps);
  for (const auto& [parameter_name, parameter] : this->parameters_) {
    this->add_state("exp_avg." + parameter_name, parameter.shape());
    this->add_state("exp_avg_sq." + parameter_name, parameter.shape());
    this->add_state("step." + parameter_name, {});
  }
}

template <class T>
void AdamMoments<T>::step(const char* name) {
  this->require_finite(name);
  const auto [beta1, beta2] = settings_.betas;
  for (std::size_t i = 0; i < this->parameters_.size(); ++i) {
    Parameter<T>& w = this->parameters_[i].parameter;
    if (!w.has_grad() || w.frozen()) continue;
    const auto state = [&](std::size_t k) { return this->state_[3 * i + k].parameter.write_data(); };
    const double t = static_cast<double>(*state(2) += T(1)), decay = this->decay_of(w);
    kernels::adam_update<T>({.learning_rate = this->learning_rate_,
                             .beta1 = beta1,
                             .beta2 = beta2,
                             .eps = settings_.eps,
                             .l2_decay = settings_.decoupled ? 0 : decay,
                             .decoupled_decay = settings_.decoupled ? decay : 0,
                             .correction1 = 1 - std::pow(beta1, t),
                             .correction2 = 1 - std::pow(beta2, t)},
                            w.size(), w.grad_data(), w.write_data(), state(0), state(1));
  }
  ++this->steps_;
}

template <class T>
Adam<T>::Adam(ParameterList<T> parameters, AdamOptions options)
    : AdamMoments<T>("Adam", std::move(parameters), options, /*decoupled=*/false) {}

template <class T>
AdamW<T>::AdamW(ParameterList<T> parameters, AdamWOptions options)
    : AdamMoments<T>("AdamW", std::move(parameters), options, /*decoupled=*/true) {}

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
template class AdamMoments<float>;
template class AdamMoments<double>;
template class Adam<float>;
template class Adam<double>;
template class AdamW<float>;
template class AdamW<double>;
template double clip_grad_norm(const ParameterList<float>&, double);
template double clip_grad_norm(const ParameterList<double>&, double);

}  // namespace xtape
