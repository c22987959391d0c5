#include <xtape/framework/train/optimizer.hpp>

#include <cmath>
#include <limits>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/optimizer.hpp>
#include <xtape/framework/train/gradient_pieces.hpp>
#include <xtape/framework/train/gradients.hpp>

namespace xtape {
namespace {

void require_rate(const char* name, double rate) {
  require(rate >= 0 && std::isfinite(rate), "[{}] learning rate must be finite and not negative, got {}", name, rate);
}

template <class T>
double squares_of(const Parameter<T>& parameter) {
  return kernels::sum_of_squares(parameter.share().grad_data(), parameter.size());
}

/// The update of one parameter. It stays empty for one that does not move: no piece refers to it.
template <class T, class Step>
struct Update {
  Step step = {};
  T *weight = nullptr, *first = nullptr, *second = nullptr;  // the moments; null where there are none
};
/// Room for the updates of a list, in memory of the calling thread.
template <class T, class Step>
std::vector<Update<T, Step>>& updates(std::size_t count) {
  thread_local std::vector<Update<T, Step>> room;
  room.assign(count, {});
  return room;
}

/// f(piece) for pieces of all parameters' gradients, on all threads.
template <class T, class F>
void for_each_piece(const ParameterList<T>& list, F f) {
  const auto& pieces = detail::gradient_pieces(list);
  parallel_for(pieces.size(), [&](std::size_t k, std::size_t) { f(pieces[k]); });
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
typename Optimizer<T>::Scale Optimizer<T>::measure(const StepOptions& options) const {
  const double max_norm = options.max_norm.value_or(std::numeric_limits<double>::infinity());
  require(max_norm >= 0, "[{}] max_norm must not be negative, got {}", name_, max_norm);
  require(!options.norm || !(*options.norm < 0), "[{}] norm must not be negative, got {}", name_,
          options.norm.value_or(0));
  const double norm = options.norm ? *options.norm : grad_norm(parameters_);
  if (!(norm * norm <= std::numeric_limits<T>::max()))  // NaN is not
    for (std::size_t i = 0; i < parameters_.size(); ++i)
      require(!moves(i) || squares_of(parameters_[i].parameter) <= std::numeric_limits<T>::max(),
              "[{}] expected finite gradients, got infinity, NaN or numbers whose squares are infinite in the gradient "
              "of {}; no parameter was changed",
              name_, parameters_[i].name);
  require(!std::isnan(norm), "[{}] norm must be that of the gradients, got NaN", name_);
  return {norm, clip_coefficient(norm, max_norm)};
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
double Sgd<T>::step(const StepOptions& options) {
  const auto [norm, factor] = this->measure(options);
  auto& update = updates<T, kernels::SgdStep>(this->parameters_.size());
  for (std::size_t i = 0; i < update.size(); ++i)
    if (this->moves(i))
      update[i] = {.step = {.learning_rate = this->learning_rate_of(i),
                            .momentum = momentum_,
                            .weight_decay = this->weight_decay_of(i),
                            .nesterov = nesterov_,
                            .gradient_factor = factor},
                   .weight = this->parameters_[i].parameter.write_data(),
                   .first = momentum_ > 0 ? this->state_[i].parameter.write_data() : nullptr};
  for_each_piece(this->parameters_, [&](const detail::GradientPiece<T>& piece) {
    const auto& [step, weight, momentum, unused] = update[piece.entry];
    kernels::sgd_update(step, piece.size, piece.data, weight + piece.begin,
                        momentum != nullptr ? momentum + piece.begin : nullptr);
  });
  ++this->steps_;
  return norm;
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
double AdamMoments<T>::step(const StepOptions& options) {
  const auto [norm, factor] = this->measure(options);
  const auto [beta1, beta2] = betas_;
  auto& update = updates<T, kernels::AdamStep>(this->parameters_.size());
  for (std::size_t i = 0; i < update.size(); ++i) {
    if (!this->moves(i)) continue;
    const auto state = [&](std::size_t k) { return this->state_[3 * i + k].parameter.write_data(); };
    const double t = static_cast<double>(*state(2) += T(1)), decay = this->weight_decay_of(i);
    update[i] = {.step = {.learning_rate = this->learning_rate_of(i),
                          .beta1 = beta1,
                          .beta2 = beta2,
                          .eps = eps_,
                          .l2_decay = decoupled_ ? 0 : decay,
                          .decoupled_decay = decoupled_ ? decay : 0,
                          .correction1 = 1 - std::pow(beta1, t),
                          .correction2 = 1 - std::pow(beta2, t),
                          .gradient_factor = factor},
                 .weight = this->parameters_[i].parameter.write_data(),
                 .first = state(0),
                 .second = state(1)};
  }
  for_each_piece(this->parameters_, [&](const detail::GradientPiece<T>& piece) {
    const auto& [step, weight, first, second] = update[piece.entry];
    kernels::adam_update(step, piece.size, piece.data, weight + piece.begin, first + piece.begin, second + piece.begin);
  });
  ++this->steps_;
  return norm;
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
