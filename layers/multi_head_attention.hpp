#pragma once

#include <array>
#include <optional>

#include <xtape/layers/key_value_cache.hpp>
#include <xtape/layers/linear.hpp>

namespace xtape {

struct MultiHeadAttentionOptions {
  bool bias = true;
  std::size_t key_width = 0, value_width = 0;  // of what keys and values are made from; 0 = width
  std::size_t kv_heads = 0;                    // heads of keys and values, a divisor of heads; 0 = as many
  std::optional<RopeOptions> rope = {};  // rotary positions; the base and the pairing, positions come with the call
  double dropout = 0;                    // of the weights, in training, unless the call's options say otherwise
};

/// Multi-head attention (Vaswani et al. 2017, section 3.2.2) with the parameters of PyTorch's nn.MultiheadAttention:
/// in_proj_weight (width + 2 kv_width, width) holds W_Q, W_K and W_V one below the other, where kv_width = kv_heads *
/// width / heads is width unless heads share keys and values; in_proj_bias their biases; out_proj is W_O. If key_width
/// or value_width differs from width, three matrices stand in place of the one: q_proj_weight (width, width),
/// k_proj_weight (kv_width, key_width) and v_proj_weight (kv_width, value_width). Weights start normal with standard
/// deviation 1 / sqrt(inputs).
///
/// With rotary positions the last query sits on the last key, as under a causal mask.
template <class T>
struct MultiHeadAttention {
  LayerName name;
  std::size_t width, heads, kv_heads, key_width, value_width;
  std::optional<RopeOptions> rotary;
  double dropout;
  Parameter<T> in_proj_weight;
  std::optional<Parameter<T>> q_proj_weight, k_proj_weight, v_proj_weight;
  std::optional<Parameter<T>> in_proj_bias;
  Linear<T> out_proj;

  MultiHeadAttention(std::size_t width_, std::size_t heads_, Rng& rng, MultiHeadAttentionOptions options = {})
      : width(width_),
        heads(heads_),
        kv_heads(options.kv_heads == 0 ? heads : options.kv_heads),
        key_width(options.key_width == 0 ? width : options.key_width),
        value_width(options.value_width == 0 ? width : options.value_width),
        rotary(options.rope),
        dropout(options.dropout),
        out_proj(width, width, rng, {.bias = options.bias}) {
    require<ShapeError>(heads > 0 && width % heads == 0,
                        "[MultiHeadAttention] width must be a multiple of heads, got width {} and heads {}", width,
                        heads);
    require<ShapeError>(heads % kv_heads == 0,
                        "[MultiHeadAttention] heads must be a multiple of kv_heads, got heads {} and kv_heads {}",
                        heads, kv_heads);
    require<ShapeError>(!rotary || width / heads % 2 == 0,
                        "[MultiHeadAttention] rotary positions need an even head width, got {} / {} = {}", width, heads,
                        width / heads);
    require(dropout >= 0 && dropout <= 1, "[MultiHeadAttention] dropout must be in [0, 1], got {}", dropout);
    const auto projection = [&](std::size_t out, std::size_t in) {
      Parameter<T> weight({out, in});
      init_scaled_normal(weight, rng);
      return weight;
    };
    if (key_width == width && value_width == width) {
      in_proj_weight = projection(rows_before(3), width);
    } else {
      q_proj_weight = projection(width, width);
      k_proj_weight = projection(rows_before(2) - rows_before(1), key_width);
      v_proj_weight = projection(rows_before(3) - rows_before(2), value_width);
    }
    if (options.bias) in_proj_bias.emplace(Shape{rows_before(3)}, Role::bias);
  }

  /// Self-attention: x (batch, time, width) -> (batch, time, width). One projection makes q, k and v. `positions`
  /// (batch, time) are for rotary positions of rows that are padded on the left, see positions_without_padding.
  Var<T> operator()(Var<T> x, const Attend<T>& attend = {}, const Integers& positions = {}) const {
    const auto here = name.enter();
    if (rotary || q_proj_weight) {
      const auto [q, k, v] = project(x, x, x, positions);
      return out_proj(attention(q, k, v, heads, with_options(attend)));
    }
    check("x", x, width);
    return out_proj(attention_packed(packed_projection(x), heads, with_options(attend)));
  }
  /// The same for further tokens of sequences whose earlier ones the cache holds, causally: x (batch, Tq, width) -> the
  /// same shape, and the cache takes up the keys and values of x. See cached_attention for `real` and `attend`.
  Var<T> operator()(Var<T> x, KeyValueCache<T>& cache, const Mask& real = {}, const Attend<T>& attend = {}) const {
    const auto here = name.enter();
    check("x", x, width);
    const Integers positions = cache.positions(x.tape(), {x.shape()[0], x.shape()[1]}, real);
    auto [q, k, v] = project(x);
    if (rotary) {
      RopeOptions options = *rotary;
      options.positions = positions;
      q = rope(q, heads, options);
      k = rope(k, kv_heads, options);
    }
    return out_proj(cached_attention(q, k, v, heads, cache, real, with_options(attend)));
  }
  /// An empty cache for `batch` sequences of up to `capacity` tokens.
  KeyValueCache<T> cache(std::size_t batch, std::size_t capacity) const {
    const std::size_t kv_width = rows_before(2) - rows_before(1);
    return {batch, capacity, kv_width, kv_width};
  }
  /// Cross-attention: query (batch, Tq, width), key (batch, Tk, key_width) and value (batch, Tk, value_width) ->
  /// (batch, Tq, width).
  Var<T> operator()(Var<T> query, Var<T> key, Var<T> value, const Attend<T>& attend = {}) const {
    const auto here = name.enter();
    const auto [q, k, v] = project(query, key, value);
    return out_proj(attention(q, k, v, heads, with_options(attend)));
  }
  /// The same with the attention weights (batch, heads, Tq, Tk) and the log-sum-exp of the scores.
  AttentionResult<T> with_weights(Var<T> query, Var<T> key, Var<T> value, const Attend<T>& attend = {}) const {
    const auto here = name.enter();
    const auto [q, k, v] = project(query, key, value);
    auto result = attention_with_weights(q, k, v, heads, with_options(attend));
    result.output = out_proj(result.output);
    return result;
  }

  void visit(auto&& f) {
    if (q_proj_weight) {
      f("q_proj_weight", q_proj_weight);
      f("k_proj_weight", k_proj_weight);
      f("v_proj_weight", v_proj_weight);
    } else {
      f("in_proj_weight", in_proj_weight);
    }
    f("in_proj_bias", in_proj_bias);
    f("out_proj", out_proj);
  }

 private:
  static void check(const char* operand, Var<T> x, std::size_t columns) {
    const Shape shape = x.shape();
    require<ShapeError>(shape.rank() == 3 && shape[2] == columns,
                        "[MultiHeadAttention] {} must be (batch, time, {}), got {}", operand, columns, shape);
  }
  Attend<T> with_options(Attend<T> attend) const {
    attend.kv_heads = kv_heads;
    if (attend.dropout == 0) attend.dropout = dropout;
    return attend;
  }
  /// Rows of the three projections before that of queries (0), keys (1) and values (2).
  std::size_t rows_before(std::size_t part) const {
    return std::array{std::size_t{0}, heads, heads + kv_heads, heads + 2 * kv_heads}[part] * (width / heads);
  }
  std::array<Var<T>, 3> project(Var<T> query, Var<T> key, Var<T> value, const Integers& positions = {}) const {
    check("query", query, width), check("key", key, key_width), check("value", value, value_width);
    Var<T> q = project(query, 0, q_proj_weight), k = project(key, 1, k_proj_weight);
    if (rotary) {
      const std::size_t queries = query.shape()[1], keys = key.shape()[1];
      require<ShapeError>(queries <= keys,
                          "[MultiHeadAttention] with rotary positions every query has a key at its place, got query {} "
                          "and key {}",
                          query.shape(), key.shape());
      RopeOptions options = *rotary;
      options.positions = positions;
      k = rope(k, kv_heads, options);
      if (!positions) options.first_position += keys - queries;
      q = rope(q, heads, options);
    }
    return {q, k, project(value, 2, v_proj_weight)};
  }
  /// q, k and v side by side, by the one projection.
  Var<T> packed_projection(Var<T> x) const {
    return in_proj_bias ? linear(x, in_proj_weight, *in_proj_bias) : linear(x, in_proj_weight);
  }
  /// q, k and v of one input, before positions. One projection makes all three where there is one, and they are small
  /// beside its weights when there are few tokens.
  std::array<Var<T>, 3> project(Var<T> x) const {
    if (q_proj_weight)
      return {project(x, 0, q_proj_weight), project(x, 1, k_proj_weight), project(x, 2, v_proj_weight)};
    const Var<T> qkv = packed_projection(x);
    const auto columns = [&](std::size_t part) { return slice(qkv, 2, rows_before(part), rows_before(part + 1)); };
    return {columns(0), columns(1), columns(2)};
  }
  Var<T> project(Var<T> x, std::size_t part, const std::optional<Parameter<T>>& own) const {
    const auto rows = [&](const Parameter<T>& p) {
      return slice(x.tape().var(p), 0, rows_before(part), rows_before(part + 1));
    };
    const Var<T> weight = own ? x.tape().var(*own) : rows(in_proj_weight);
    return in_proj_bias ? linear(x, weight, rows(*in_proj_bias)) : linear(x, weight);
  }
};

}  // namespace xtape
