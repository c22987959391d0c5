#pragma once
// Optimizers: they own the moments, and change the parameters of a list in place.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <xtape/framework/nn/parameter_list.hpp>
#include <xtape/framework/train/parameter_group.hpp>

namespace xtape {

struct StepOptions {
  std::optional<double> max_norm =
      {};                           // clips as clip_grad_norm does, but within the update; gradients keep their bits
  std::optional<double> norm = {};  // of the gradients, from require_finite or grad_norm: saves the pass that finds it
};

/// What is common to optimizers: the list, the rate, the groups and the number of steps taken. A parameter without a
/// gradient and a frozen one are skipped: they neither move nor decay. A parameter that is listed twice is taken once,
/// under its first name.
template <class T>
class Optimizer {
 public:
  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double rate);
  /// Calls of step() so far, for reports: no update depends on it. A resumed run may set it.
  std::uint64_t steps() const { return steps_; }
  void set_steps(std::uint64_t steps) { steps_ = steps; }
  void zero_grad() { xtape::zero_grad(parameters_); }
  ParameterList<T>& parameters() { return parameters_; }
  /// By name, all that the next step depends on besides the parameters, their gradients and the learning rate: what a
  /// resume needs.
  ParameterList<T>& state() { return state_; }
  /// Names of the parameters that decay.
  std::vector<std::string> decaying() const;
  /// Each parameter's group, learning rate and weight decay as they are now; describe(optimizer) shows them as a table.
  std::vector<ParameterSettings> settings() const;

 protected:
  template <class Options>
  Optimizer(const char* name, ParameterList<T> parameters, const Options& options);
  Parameter<T>& add_state(const std::string& name, const Shape& shape);
  /// Of the i-th parameter.
  double learning_rate_of(std::size_t i) const { return learning_rate_ * shares_[i].learning_rate_factor; }
  double weight_decay_of(std::size_t i) const { return shares_[i].weight_decay; }
  bool moves(std::size_t i) const { return parameters_[i].parameter.has_grad() && !parameters_[i].parameter.frozen(); }
  /// The norm of the gradients that a step is about to use, and what clips them. Throws Error with the name of the
  /// first parameter whose gradient is not finite, or so large that averages of its squares would not be.
  struct Scale {
    double norm, factor;
  };
  Scale measure(const StepOptions& options) const;

  const char* name_;
  ParameterList<T> parameters_, state_;
  double learning_rate_;
  std::vector<ParameterGroup> groups_;
  std::vector<detail::Share> shares_;  // of the parameters, in their order
  std::uint64_t steps_ = 0;
};

namespace detail {
template <class O>
concept HasSettings = requires(const O& optimizer) {
  optimizer.settings();
};
}  // namespace detail

/// An optimizer as a table: a line for each parameter with its role, learning rate, weight decay and group.
template <detail::HasSettings Optimizer>
std::string describe(Optimizer& optimizer) {
  return to_string(optimizer.settings());
}

struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient
  Decay decay = Decay::weights;
  std::vector<ParameterGroup> groups = {};  // parameters with settings of their own
};
/// w -= learning_rate b with b = momentum b + g, or learning_rate (g + momentum b) with nesterov, which needs a
/// momentum: PyTorch's SGD without dampening.
template <class T>
class Sgd : public Optimizer<T> {
 public:
  explicit Sgd(ParameterList<T> parameters, const SgdOptions& options = {});
  /// Moves the parameters and returns the norm that their gradients had together, before clipping.
  double step(const StepOptions& options = {});

 private:
  double momentum_;
  bool nesterov_;
};

/// What Adam and AdamW have in common: averages of the gradient and of its square, and a count of each parameter's own
/// steps, since the average of a parameter whose gradients begin late (a part that is frozen at first, say) is
/// corrected as a young one. The count is kept as a T: it stays at 2^24 in float, where every correction is 1.
template <class T>
class AdamMoments : public Optimizer<T> {
 protected:
  template <class Options>
  AdamMoments(const char* name, ParameterList<T> parameters, const Options& options, bool decoupled);

 public:
  /// Moves the parameters and returns the norm that their gradients had together, before clipping.
  double step(const StepOptions& options = {});

 private:
  std::array<double, 2> betas_;
  double eps_;
  bool decoupled_;
};

struct AdamOptions {
  double learning_rate = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient
  Decay decay = Decay::weights;
  std::vector<ParameterGroup> groups = {};  // parameters with settings of their own
};
/// Adam (Kingma and Ba 2015, algorithm 1); equal to PyTorch's Adam with decay = Decay::all.
template <class T>
class Adam : public AdamMoments<T> {
 public:
  explicit Adam(ParameterList<T> parameters, const AdamOptions& options = {});
};

struct AdamWOptions {
  double learning_rate = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;  // taken off the weights directly, scaled by the learning rate
  Decay decay = Decay::weights;
  std::vector<ParameterGroup> groups = {};  // parameters with settings of their own
};
/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2); equal to PyTorch's AdamW with decay =
/// Decay::all.
template <class T>
class AdamW : public AdamMoments<T> {
 public:
  explicit AdamW(ParameterList<T> parameters, const AdamWOptions& options = {});
};

}  // namespace xtape
