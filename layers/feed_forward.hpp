#pragma once

#include <xtape/layers/dropout.hpp>
#include <xtape/layers/linear.hpp>

namespace xtape {

enum class Activation { relu, gelu, gelu_tanh };

struct FeedForwardOptions {
  Activation activation = Activation::gelu;
  double dropout = 0;
  bool bias = true;
};

/// linear2(dropout(activation(linear1(x)))) at every place (Vaswani et al. 2017, section 3.3): x (..., width) -> (...,
/// width).
template <class T>
struct FeedForward {
  Linear<T> linear1, linear2;
  Activation activation;
  Dropout dropout;

  FeedForward(std::size_t width, std::size_t hidden, Rng& rng, FeedForwardOptions options = {})
      : linear1(width, hidden, rng, {.bias = options.bias}),
        linear2(hidden, width, rng, {.bias = options.bias}),
        activation(options.activation),
        dropout(options.dropout) {}

  Var<T> operator()(Var<T> x) const { return linear2(dropout(activated(x))); }
  void visit(auto&& f) {
    f("linear1", linear1);
    f("linear2", linear2);
  }

 private:
  /// activation(linear1(x)). gelu is one op with its product; relu is too cheap to be worth one.
  Var<T> activated(Var<T> x) const {
    if (activation == Activation::relu) return relu(linear1(x));
    const auto here = linear1.name.enter();
    OptionalOperand<T> bias;
    if (linear1.bias) bias = *linear1.bias;
    return activation == Activation::gelu ? linear_gelu(x, linear1.weight, bias)
                                          : linear_gelu_tanh(x, linear1.weight, bias);
  }
};

}  // namespace xtape
