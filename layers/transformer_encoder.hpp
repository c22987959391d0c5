#pragma once

#include <xtape/layers/transformer_block.hpp>

namespace xtape {

struct TransformerStackOptions {
  std::size_t layers = 2;
  TransformerBlockOptions block = {};
  bool norm = true;  // a LayerNorm after the last layer
};

/// A stack of blocks: x (batch, time, width) -> the same shape. PyTorch's nn.TransformerEncoder: layers.0, ..., norm.
template <class T>
struct TransformerEncoder {
  LayerName name;
  std::vector<TransformerBlock<T>> layers;
  std::optional<LayerNorm<T>> norm;

  TransformerEncoder(std::size_t width, std::size_t heads, Rng& rng, const TransformerStackOptions& options = {}) {
    require<ShapeError>(options.layers > 0, "[TransformerEncoder] expected at least one layer, got 0");
    layers.reserve(options.layers);
    for (std::size_t i = 0; i < options.layers; ++i) layers.emplace_back(width, heads, rng, options.block);
    if (options.norm) norm.emplace(width, LayerNormOptions{.bias = options.block.bias});
    name_layers(*this);
  }

  Var<T> operator()(Var<T> x, const Attend<T>& attend = {}, const Integers& positions = {}) const {
    const auto here = name.enter();
    for (const auto& layer : layers) x = layer(x, attend, positions);
    return norm ? (*norm)(x) : x;
  }
  void visit(auto&& f) {
    f("layers", layers);
    f("norm", norm);
  }
};

}  // namespace xtape
