#pragma once

#include <xtape/layers/transformer_encoder.hpp>

namespace xtape {

/// Self-attention, attention to a memory and feed-forward, each with a residual connection and LayerNorm: x (batch, Tq,
/// width) and memory (batch, Tk, width) -> (batch, Tq, width). Parameters are those of PyTorch's
/// nn.TransformerDecoderLayer: self_attn, multihead_attn, linear1, linear2, norm1, norm2, norm3. In the pre-norm form
///   x = x + self_attn(norm1(x));   x = x + multihead_attn(norm2(x), memory);   x = x + feed_forward(norm3(x))
/// and in the post-norm form each norm stands after its sum. Nothing is causal unless `self` says so.
template <class T>
struct TransformerDecoderLayer {
  LayerName name;
  MultiHeadAttention<T> self_attn, multihead_attn;
  FeedForward<T> feed_forward;
  LayerNorm<T> norm1, norm2, norm3;
  Dropout dropout;
  Norm norm;

  TransformerDecoderLayer(std::size_t width, std::size_t heads, Rng& rng, TransformerBlockOptions options = {})
      : self_attn(width, heads, rng,
                  {.bias = options.bias,
                   .kv_heads = options.kv_heads,
                   .rope = options.rope,
                   .dropout = options.attention_dropout}),
        multihead_attn(width, heads, rng,
                       {.bias = options.bias, .kv_heads = options.kv_heads, .dropout = options.attention_dropout}),
        feed_forward(width, options.hidden > 0 ? options.hidden : 4 * width, rng,
                     {.activation = options.activation, .dropout = options.dropout, .bias = options.bias}),
        norm1(width, {.bias = options.bias}),
        norm2(width, {.bias = options.bias}),
        norm3(width, {.bias = options.bias}),
        dropout(options.dropout),
        norm(options.norm) {
    require(!options.attention_only, "[TransformerDecoderLayer] expected a feed-forward layer, got attention_only");
  }

  Var<T> operator()(Var<T> x, Var<T> memory, const Attend<T>& self = {}, const Attend<T>& cross = {}) const {
    const auto here = name.enter();
    if (norm == Norm::pre) {
      x = x + dropout(self_attn(norm1(x), self));
      x = x + dropout(multihead_attn(norm2(x), memory, memory, cross));
      return x + dropout(feed_forward(norm3(x)));
    }
    x = norm1(x + dropout(self_attn(x, self)));
    x = norm2(x + dropout(multihead_attn(x, memory, memory, cross)));
    return norm3(x + dropout(feed_forward(x)));
  }
  void visit(auto&& f) {
    f("self_attn", self_attn);
    f("multihead_attn", multihead_attn);
    f("linear1", feed_forward.linear1);
    f("linear2", feed_forward.linear2);
    f("norm1", norm1);
    f("norm2", norm2);
    f("norm3", norm3);
  }
};

/// A stack of decoder layers that look at one memory. PyTorch's nn.TransformerDecoder: layers.0, ..., norm.
template <class T>
struct TransformerDecoder {
  LayerName name;
  std::vector<TransformerDecoderLayer<T>> layers;
  std::optional<LayerNorm<T>> norm;

  TransformerDecoder(std::size_t width, std::size_t heads, Rng& rng, const TransformerStackOptions& options = {}) {
    require<ShapeError>(options.layers > 0, "[TransformerDecoder] expected at least one layer, got 0");
    layers.reserve(options.layers);
    for (std::size_t i = 0; i < options.layers; ++i) layers.emplace_back(width, heads, rng, options.block);
    if (options.norm) norm.emplace(width, LayerNormOptions{.bias = options.block.bias});
    name_layers(*this);
  }

  Var<T> operator()(Var<T> x, Var<T> memory, const Attend<T>& self = {}, const Attend<T>& cross = {}) const {
    const auto here = name.enter();
    for (const auto& layer : layers) x = layer(x, memory, self, cross);
    return norm ? (*norm)(x) : x;
  }
  void visit(auto&& f) {
    f("layers", layers);
    f("norm", norm);
  }
};

}  // namespace xtape
