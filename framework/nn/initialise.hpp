#pragma once
// Initial values of parameters.

#include <xtape/framework/base/random.hpp>
#include <xtape/framework/nn/parameter_list.hpp>

namespace xtape {

template <class T>
void fill(Parameter<T>& parameter, T value);

/// Normal with mean 0.
template <class T>
void init_normal(Parameter<T>& parameter, double standard_deviation, Rng& rng);

/// Normal with standard deviation 1 / sqrt(in) for a weight (out, in): keeps the variance of activations (LeCun et al.
/// 1998, section 4.6). The default of Linear and MultiHeadAttention.
template <class T>
void init_scaled_normal(Parameter<T>& weight, Rng& rng);

/// Uniform in +-sqrt(6 / (in + out)) for a weight (out, in) (Glorot and Bengio 2010, equation 16); PyTorch's choice for
/// attention.
template <class T>
void init_xavier_uniform(Parameter<T>& weight, Rng& rng);

/// While one lives, no init_... of this thread draws numbers, and new parameters stay 0: for a model that is about to
/// be filled from a file, which would take longer to initialise than to read.
class NoInitialValues {
 public:
  NoInitialValues();
  NoInitialValues(const NoInitialValues&) = delete;
  NoInitialValues& operator=(const NoInitialValues&) = delete;
  ~NoInitialValues();

 private:
  bool before_;
};

/// GPT-2's choice for a whole model of `layers` blocks (Radford et al. 2019, section 2.3): weights and embeddings
/// normal with standard deviation 0.02, those that feed a residual connection (out_proj.weight, linear2.weight) with
/// 0.02 / sqrt(2 layers); biases 0, gains 1.
template <class T>
void init_gpt(const ParameterList<T>& list, std::size_t layers, Rng& rng);

}  // namespace xtape
