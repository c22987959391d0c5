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

  Var<T> operator()(Var<T> x) const {
    const Var<T> hidden = linear1(x);
    return linear2(dropout(activation == Activation::relu   ? relu(hidden)
                           : activation == Activation::gelu ? gelu(hidden)
                                                            : gelu_tanh(hidden)));
  }
  void visit(auto&& f) {
    f("linear1", linear1);
    f("linear2", linear2);
  }
};

}  // namespace xtape
