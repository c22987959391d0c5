#pragma once

#include <cmath>

#include <xtape/framework/nn/initialise.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

/// Rows of weight (count, width) by number, as PyTorch's nn.Embedding: tokens (...), any integral expression, -> (...,
/// width). Rows start normal with standard deviation 1 / sqrt(width).
template <class T>
struct Embedding {
  LayerName name;
  Parameter<T> weight;
  EmbeddingOptions options;

  Embedding(std::size_t count, std::size_t width, Rng& rng, EmbeddingOptions options_ = {})
      : weight({count, width}, Role::embedding), options(options_) {
    require<ShapeError>(count > 0 && width > 0, "[Embedding] count and width must be at least 1, got {} and {}", count,
                        width);
    init_normal(weight, 1 / std::sqrt(static_cast<double>(width)), rng);
  }

  template <class Tokens>
  Var<T> operator()(Tape<T>& tape, const Tokens& tokens) const {
    const auto here = name.enter();
    return embedding(tape.var(weight), tokens, options);
  }
  void visit(auto&& f) { f("weight", weight); }
};

}  // namespace xtape
