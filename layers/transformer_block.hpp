#pragma once

#include <optional>

#include <xtape/layers/feed_forward.hpp>
#include <xtape/layers/layer_norm.hpp>
#include <xtape/layers/multi_head_attention.hpp>

namespace xtape {

/// Where a block normalises: before each sublayer (Xiong et al. 2020) or after each residual sum (Vaswani et al. 2017).
enum class Norm { pre, post };

struct TransformerBlockOptions {
  Norm norm = Norm::pre;
  std::size_t hidden = 0;  // width of the feed-forward layer; 0 means 4 width
  Activation activation = Activation::gelu;
  double dropout = 0;                    // after each sublayer and inside the feed-forward layer
  double attention_dropout = 0;          // of the weights of attention
  bool bias = true;                      // of linear layers and of norms, as in PyTorch and GPT-2
  std::size_t kv_heads = 0;              // of the self-attention, see MultiHeadAttentionOptions
  std::optional<RopeOptions> rope = {};  // of the self-attention
  bool attention_only = false;           // TransformerBlock has no feed-forward (Elhage et al. 2021)
};

/// Self-attention and feed-forward, each with a residual connection and LayerNorm; x (batch, time, width) -> the same
/// shape. Parameters are those of PyTorch's nn.TransformerEncoderLayer: self_attn, linear1, linear2, norm1, norm2.
///   pre:  x = x + self_attn(norm1(x));   x = x + feed_forward(norm2(x))
///   post: x = norm1(x + self_attn(x));   x = norm2(x + feed_forward(x))
/// With attention_only the second half, its parameters and norm2 are absent.
template <class T>
struct TransformerBlock {
  LayerName name;
  MultiHeadAttention<T> self_attn;
  std::optional<FeedForward<T>> feed_forward;
  LayerNorm<T> norm1;
  std::optional<LayerNorm<T>> norm2;
  Dropout dropout;
  Norm norm;

  TransformerBlock(std::size_t width, std::size_t heads, Rng& rng, TransformerBlockOptions options = {})
      : self_attn(width, heads, rng,
                  {.bias = options.bias,
                   .kv_heads = options.kv_heads,
                   .rope = options.rope,
                   .dropout = options.attention_dropout}),
        norm1(width, {.bias = options.bias}),
        dropout(options.dropout),
        norm(options.norm) {
    if (options.attention_only) return;
    feed_forward.emplace(
        width, options.hidden > 0 ? options.hidden : 4 * width, rng,
        FeedForwardOptions{.activation = options.activation, .dropout = options.dropout, .bias = options.bias});
    norm2.emplace(width, LayerNormOptions{.bias = options.bias});
  }

  /// `positions` (batch, time) are for rotary positions of rows that are padded on the left.
  Var<T> operator()(Var<T> x, const Attend<T>& attend = {}, const Integers& positions = {}) const {
    return around(x, [&](Var<T> y) { return self_attn(y, attend, positions); });
  }
  /// The same for further tokens of sequences whose earlier ones the cache of self_attn holds.
  Var<T> operator()(Var<T> x, KeyValueCache<T>& cache, const Mask& real = {}, const Attend<T>& attend = {}) const {
    return around(x, [&](Var<T> y) { return self_attn(y, cache, real, attend); });
  }
  void visit(auto&& f) {
    f("self_attn", self_attn);
    if (feed_forward) {
      f("linear1", feed_forward->linear1);
      f("linear2", feed_forward->linear2);
    }
    f("norm1", norm1);
    f("norm2", norm2);
  }

 private:
  /// The block around its self-attention.
  Var<T> around(Var<T> x, auto self_attention) const {
    const auto here = name.enter();
    if (norm == Norm::pre) {
      x = x + dropout(self_attention(norm1(x)));
      return feed_forward ? x + dropout((*feed_forward)((*norm2)(x))) : x;
    }
    x = norm1(x + dropout(self_attention(x)));
    return feed_forward ? (*norm2)(x + dropout((*feed_forward)(x))) : x;
  }
};

}  // namespace xtape
