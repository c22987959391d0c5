#include <xtape/framework/train/optimizer.hpp>

#include <cmath>
#include <limits>

#include <xtape/framework/kernels/optimizer.hpp>

namespace xtape {
namespace {

void require_rate(const char* name, double rate) {
  require(rate >= 0 && std::isfinite(rate), "[{}] learning rate must be finite and not negative, got {}", name, rate);
}

}  // namespace

template <class T>
template <class Options>
Optimizer<T>::Optimizer(const char* name, ParameterList<T> parameters, const Options& options)
    : name_(name),
      parameters_(each_once(parameters)),
      learning_rate_(options.learning_rate),
      groups_(options.groups),
      shares_(detail::shares(name, parameters_, options.weight_decay, options.decay, groups_)) {
  require_rate(name, options.learning_rate);
}

template <class T>
void Optimizer<T>::set_learning_rate(double rate) {
  require_rate("set_learning_rate", rate);
  learning_rate_ = rate;
}

template <class T>
std::vector<ParameterSettings> Optimizer<T>::settings() const {
  std::vector<ParameterSettings> settings;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, parameter] = parameters_[i];
    settings.push_back({name, parameter.role(), parameter.frozen(), learning_rate_of(i), weight_decay_of(i),
                        shares_[i].group ? to_string(groups_[*shares_[i].group]) : ""});
  }
  return settings;
}

template <class T>
std::vector<std::string> Optimizer<T>::decaying() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (weight_decay_of(i) > 0) names.push_back(parameters_[i].name);
  return names;
}

template <class T>
Parameter<T>& Optimizer<T>::add_state(const std::string& name, const Shape& shape) {
  return state_.emplace_back(name, Parameter<T>(shape)).parameter;
}

template <class T>
void Optimizer<T>::require_finite() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!moves(i)) continue;
    const auto& [name, parameter] = parameters_[i];
    const double squares = kernels::sum_of_squares(parameter.share().grad_data(), parameter.size());
    require(
        squares <= std::numeric_limits<T>::max(),  // NaN is not
        "[{}] expected finite gradients, got infinity, NaN or numbers whose squares are infinite in the gradient of "
        "{}; no parameter was changed",
        name_, name);
  }
}

template <class T>
Sgd<T>::Sgd(ParameterList<T> parameters, const SgdOptions& options)
    : Optimizer<T>("Sgd", std::move(parameters), options), momentum_(options.momentum), nesterov_(options.nesterov) {
  require(momentum_ >= 0 && momentum_ < 1, "[Sgd] momentum must be in [0, 1), got {}", momentum_);
  require(!nesterov_ || momentum_ > 0, "[Sgd] nesterov needs a positive momentum, got {}", momentum_);
  if (momentum_ > 0)
    for (const auto& [name, parameter] : this->parameters_) this->add_state("momentum." + name, parameter.shape());
}

template <class T>
void Sgd<T>::step() {
  this->require_finite();
  for (std::size_t i = 0; i < this->parameters_.size(); ++i) {
    if (!this->moves(i)) continue;
    Parameter<T>& w = this->parameters_[i].parameter;
    T* momentum = momentum_ > 0 ? this->state_[i].parameter.write_data() : nullptr;
    kernels::sgd_update<T>({this->learning_rate_of(i), momentum_, this->weight_decay_of(i), nesterov_}, w.size(),
                           w.grad_data(), w.write_data(), momentum);
  }
  ++this->steps_;
}

template <class T>
template <class Options>
AdamMoments<T>::AdamMoments(const char* name, ParameterList<T> parameters, const Options& options, bool decoupled)
    : Optimizer<T>(name, std::move(parameters), options),
      betas_(options.betas),
      eps_(options.eps),
      decoupled_(decoupled) {
  for (double beta : betas_) require(beta >= 0 && beta < 1, "[{}] betas must be in [0, 1), got {}", name, beta);
  require(eps_ > 0, "[{}] eps must be positive, got {}", name, eps_);
  for (const auto& [parameter_name, parameter] : this->parameters_) {
    this->add_state("exp_avg." + parameter_name, parameter.shape());
    this->add_state("exp_avg_sq." + parameter_name, parameter.shape());
    this->add_state("step." + parameter_name, {});
  }
}

template <class T>
void AdamMoments<T>::step() {
  this->require_finite();
  const auto [beta1, beta2] = betas_;
  for (std::size_t i = 0; i < this->parameters_.size(); ++i) {
    if (!this->moves(i)) continue;
    Parameter<T>& w = this->parameters_[i].parameter;
    const auto state = [&](std::size_t k) { return this->state_[3 * i + k].parameter.write_data(); };
    const double t = static_cast<double>(*state(2) += T(1)), decay = this->weight_decay_of(i);
    kernels::adam_update<T>({.learning_rate = this->learning_rate_of(i),
                             .beta1 = beta1,
                             .beta2 = beta2,
                             .eps = eps_,
                             .l2_decay = decoupled_ ? 0 : decay,
                             .decoupled_decay = decoupled_ ? decay : 0,
                             .correction1 = 1 - std::pow(beta1, t),
                             .correction2 = 1 - std::pow(beta2, t)},
                            w.size(), w.grad_data(), w.write_data(), state(0), state(1));
  }
  ++this->steps_;
}

template <class T>
Adam<T>::Adam(ParameterList<T> parameters, const AdamOptions& options)
    : AdamMoments<T>("Adam", std::move(parameters), options, /*decoupled=*/false) {}

template <class T>
AdamW<T>::AdamW(ParameterList<T> parameters, const AdamWOptions& options)
    : AdamMoments<T>("AdamW", std::move(parameters), options, /*decoupled=*/true) {}

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

}  // namespace xtape
