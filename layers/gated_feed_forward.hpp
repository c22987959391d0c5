#pragma once

#include <xtape/layers/dropout.hpp>
#include <xtape/layers/linear.hpp>

namespace xtape {

struct GatedFeedForwardOptions {
  double dropout = 0;
  bool bias = false;
};

/// down(dropout(silu(gate(x)) * up(x))) at every place: SwiGLU (Shazeer 2020, equation 6). x (..., width) -> (...,
/// width). It has as many numbers as a FeedForward of width hidden if its own is two thirds of that.
template <class T>
struct GatedFeedForward {
  LayerName name;
  Linear<T> gate, up, down;
  Dropout dropout;

  GatedFeedForward(std::size_t width, std::size_t hidden, Rng& rng, GatedFeedForwardOptions options = {})
      : gate(width, hidden, rng, {.bias = options.bias}),
        up(width, hidden, rng, {.bias = options.bias}),
        down(hidden, width, rng, {.bias = options.bias}),
        dropout(options.dropout) {}

  Var<T> operator()(Var<T> x) const {
    const auto here = name.enter();
    return down(dropout(swiglu(gate(x), up(x))));
  }
  void visit(auto&& f) {
    f("gate", gate);
    f("up", up);
    f("down", down);
  }
};

}  // namespace xtape
