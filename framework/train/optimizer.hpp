#pragma once
// Optimizers: they own the moments, and change the parameters of a list in place.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <xtape/framework/nn/parameter_list.hpp>

namespace xtape {

/// Which parameters decay: those of role weight alone (not biases, gains and embeddings), or all.
enum class Decay { weights, all };

/// What is common to optimizers: the list, the rate and the number of steps taken. A parameter without a gradient is
/// skipped: it neither moves nor decays.
template <class T>
class Optimizer {
 public:
  double learning_rate() const { return learning_rate_; }
  void set_learning_rate(double rate);
  /// Calls of step() so far.
  std::uint64_t steps() const { return steps_; }
  void set_steps(std::uint64_t steps) { steps_ = steps; }
  void zero_grad() { xtape::zero_grad(parameters_); }
  ParameterList<T>& parameters() { return parameters_; }
  /// By name, all that the next step depends on besides the parameters, their gradients and the learning rate: what a
  /// resume needs.
  ParameterList<T>& state() { return state_; }
  /// Names of the parameters that decay.
  std::vector<std::string> decaying() const;

 protected:
  Optimizer(ParameterList<T> parameters, double learning_rate, double weight_decay, Decay decay);
  Parameter<T>& add_state(const std::string& name, const Shape& shape);
  double decay_of(const Parameter<T>& parameter) const;
  /// Throws Error with the name of the first parameter whose gradient is not finite, before anything is changed.
  void require_finite(const char* optimizer) const;

  ParameterList<T> parameters_, state_;
  double learning_rate_, weight_decay_;
  Decay decay_;
  std::uint64_t steps_ = 0;
};

struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient
  Decay decay = Decay::weights;
};
/// w -= learning_rate b with b = momentum b + g, or learning_rate (g + momentum b) with nesterov, which needs a
/// momentum: PyTorch's SGD without dampening.
template <class T>
class Sgd : public Optimizer<T> {
 public:
  explicit Sgd(ParameterList<T> parameters, SgdOptions options = {});
  void step();

 private:
  SgdOptions options_;
};

/// What Adam and AdamW have in common: averages of the gradient and of its square, and a count of each parameter's own
/// steps, since the average of a parameter whose gradients begin late (a part that is frozen at first, say) is
/// corrected as a young one. The count is kept as a T: it stays at 2^24 in float, where every correction is 1.
template <class T>
class AdamMoments : public Optimizer<T> {
 protected:
  struct Settings {
    std::array<double, 2> betas;
    double eps;
    bool decoupled;
  };
  template <class Options>
  AdamMoments(const char* name, ParameterList<T> parameters, const Options& options, bool decoupled);
  void step(const char* name);

 private:
  Settings settings_;
};

struct AdamOptions {
  double learning_rate = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient
  Decay decay = Decay::weights;
};
/// Adam (Kingma and Ba 2015, algorithm 1); equal to PyTorch's Adam with decay = Decay::all.
template <class T>
class Adam : public AdamMoments<T> {
 public:
  explicit Adam(ParameterList<T> parameters, AdamOptions options = {});
  void step() { AdamMoments<T>::step("Adam"); }
};

struct AdamWOptions {
  double learning_rate = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;  // taken off the weights directly, scaled by the learning rate
  Decay decay = Decay::weights;
};
/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2); equal to PyTorch's AdamW with decay =
/// Decay::all.
template <class T>
class AdamW : public AdamMoments<T> {
 public:
  explicit AdamW(ParameterList<T> parameters, AdamWOptions options = {});
  void step() { AdamMoments<T>::step("AdamW"); }
};

/// Scales all gradients by min(1, max / (norm + 1e-6)), as PyTorch's clip_grad_norm_ does, and returns the norm before
/// it. A norm that is not finite is returned and the gradients are left alone; then the optimizer's step refuses, with
/// the parameter's name. Gradients that need no scaling keep their bits. max = 0 scales to zero; a negative max is an
/// Error.
template <class T>
double clip_grad_norm(const ParameterList<T>& list, double max);

}  // namespace xtape
