#pragma once

#include <optional>

#include <xtape/layers/linear.hpp>

namespace xtape {

struct MultiHeadAttentionOptions {
  bool bias = true;
};

/// Multi-head attention (Vaswani et al. 2017, section 3.2.2) with the parameters of PyTorch's nn.MultiheadAttention:
/// in_proj_weight (3 width, width) holds W_Q, W_K and W_V one below the other, in_proj_bias (3 width,) their biases,
/// out_proj is W_O. in_proj_weight starts normal with standard deviation 1 / sqrt(width).
template <class T>
struct MultiHeadAttention {
  LayerName name;
  std::size_t width, heads;
  Parameter<T> in_proj_weight;
  std::optional<Parameter<T>> in_proj_bias;
  Linear<T> out_proj;

  MultiHeadAttention(std::size_t width_, std::size_t heads_, Rng& rng, MultiHeadAttentionOptions options = {})
      : width(width_),
        heads(heads_),
        in_proj_weight({3 * width, width}),
        out_proj(width, width, rng, {.bias = options.bias}) {
    require<ShapeError>(heads > 0 && width % heads == 0,
                        "[MultiHeadAttention] width must be a multiple of heads, got width {} and heads {}", width,
                        heads);
    init_scaled_normal(in_proj_weight, rng);
    if (options.bias) in_proj_bias.emplace(Shape{3 * width}, Role::bias);
  }

  /// Self-attention: x (batch, time, width) -> (batch, time, width). One projection makes q, k and v.
  Var<T> operator()(Var<T> x, const Attend<T>& attend = {}) const {
    const auto here = name.enter();
    check("x", x);
    return out_proj(attention_packed(project(x, 0, 3), heads, attend));
  }
  /// Cross-attention: query (batch, Tq, width), key and value (batch, Tk, width) -> (batch, Tq, width).
  Var<T> operator()(Var<T> query, Var<T> key, Var<T> value, const Attend<T>& attend = {}) const {
    const auto here = name.enter();
    check("query", query), check("key", key), check("value", value);
    return out_proj(attention(project(query, 0, 1), project(key, 1, 2), project(value, 2, 3), heads, attend));
  }
  /// The same with the attention weights (batch, heads, Tq, Tk) and the log-sum-exp of the scores.
  AttentionResult<T> with_weights(Var<T> query, Var<T> key, Var<T> value, const Attend<T>& attend = {}) const {
    const auto here = name.enter();
    check("query", query), check("key", key), check("value", value);
    auto result = attention_with_weights(project(query, 0, 1), project(key, 1, 2), project(value, 2, 3), heads, attend);
    result.output = out_proj(result.output);
    return result;
  }

  void visit(auto&& f) {
    f("in_proj_weight", in_proj_weight);
    f("in_proj_bias", in_proj_bias);
    f("out_proj", out_proj);
  }

 private:
  void check(const char* operand, Var<T> x) const {
    const Shape shape = x.shape();
    require<ShapeError>(shape.rank() == 3 && shape[2] == width,
                        "[MultiHeadAttention] {} must be (batch, time, {}), got {}", operand, width, shape);
  }
  /// Projections first to last - 1 of (query, key, value).
  Var<T> project(Var<T> x, std::size_t first, std::size_t last) const {
    const Var<T> weight = x.tape().var(in_proj_weight);
    const bool all = first == 0 && last == 3;
    const auto rows = [&](Var<T> p) { return all ? p : slice(p, 0, first * width, last * width); };
    if (!in_proj_bias) return linear(x, rows(weight));
    return linear(x, rows(weight), rows(x.tape().var(*in_proj_bias)));
  }
};

}  // namespace xtape
