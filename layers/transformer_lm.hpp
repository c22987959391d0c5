#pragma once

#include <xtape/layers/embedding.hpp>
#include <xtape/layers/positions.hpp>
#include <xtape/layers/transformer_block.hpp>

namespace xtape {

struct TransformerLmOptions {
  std::size_t vocabulary = 0, length = 0;  // tokens that exist; longest sequence
  std::size_t width = 64, heads = 4, layers = 2;
  TransformerBlockOptions block = {};
  bool tie_embeddings = false;  // one table for tokens and output projection (Press and Wolf 2017)
};

/// A decoder-only language model: tokens (batch, time) -> logits (batch, time, vocabulary), where logits[t] depends on
/// tokens 0 to t alone. Token and position embeddings (the latter unless the blocks have rotary positions), causal
/// blocks, a last LayerNorm (in the pre-norm form) and an output projection without bias.
template <class T>
struct TransformerLm {
  Embedding<T> token_embedding;
  std::optional<LearnedPositions<T>> position_embedding;
  Dropout dropout;
  std::vector<TransformerBlock<T>> blocks;
  std::optional<LayerNorm<T>> norm;
  Linear<T> head;

  TransformerLm(const TransformerLmOptions& o, Rng& rng)
      : token_embedding(o.vocabulary, o.width, rng),
        position_embedding(make_positions(o, rng)),
        dropout(o.block.dropout),
        head(o.width, o.vocabulary, rng, {.bias = false}) {
    require<ShapeError>(o.layers > 0, "[TransformerLm] expected at least one layer, got 0");
    if (o.tie_embeddings) head.weight = token_embedding.weight.share();
    blocks.reserve(o.layers);
    for (std::size_t i = 0; i < o.layers; ++i) blocks.emplace_back(o.width, o.heads, rng, o.block);
    if (o.block.norm == Norm::pre) norm.emplace(o.width, LayerNormOptions{.bias = o.block.bias});
    name_layers(*this);
  }

  /// `attend` adds to the causal mask, for instance {.allow_keys = tape.lengths(lengths, time)} for padded batches.
  /// Rows that are padded on the left need their `positions` as well: positions_without_padding(tape, allow_keys).
  template <class Tokens>
  Var<T> operator()(Tape<T>& tape, const Tokens& tokens, Attend<T> attend = {}, const Integers& positions = {}) const {
    attend.causal = true;
    Var<T> x = embed(tape, checked_tokens(tape, tokens), positions);
    for (const auto& block : blocks) x = block(x, attend, positions);
    return head(norm ? (*norm)(x) : x);
  }
  /// The same for further tokens of sequences whose earlier ones the cache holds; it takes up the new ones, under
  /// no_grad. `real` (batch, time) is false for padding, on either side: it is not held, and its logits mean nothing.
  /// See cached_attention for `attend`. If it throws, the cache is as before.
  template <class Tokens>
  Var<T> operator()(Tape<T>& tape, const Tokens& tokens, ModelCache<T>& cache, const Mask& real = {},
                    const Attend<T>& attend = {}) const {
    require<ShapeError>(cache.layers.size() == blocks.size(),
                        "[TransformerLm] expected a cache of {} layers, got one of {}", blocks.size(),
                        cache.layers.size());
    const Integers checked = checked_tokens(tape, tokens);
    const Integers positions = cache.positions(tape, checked.shape, real);
    return detail::all_or_nothing(cache, [&] {
      Var<T> x = embed(tape, checked, positions);
      for (std::size_t i = 0; i < blocks.size(); ++i) x = blocks[i](x, cache.layers[i], real, attend);
      return head(norm ? (*norm)(x) : x);
    });
  }
  /// An empty cache for `batch` sequences of up to `capacity` tokens.
  ModelCache<T> cache(std::size_t batch, std::size_t capacity) const {
    const std::size_t longest = position_embedding ? position_embedding->weight.shape()[0] : capacity;
    require<ShapeError>(capacity <= longest,
                        "[TransformerLm] the model has {} positions, too few for a cache of {} tokens", longest,
                        capacity);
    ModelCache<T> result;
    for (const auto& block : blocks) result.layers.push_back(block.self_attn.cache(batch, capacity));
    return result;
  }
  void visit(auto&& f) {
    f("token_embedding", token_embedding);
    f("position_embedding", position_embedding);
    f("blocks", blocks);
    f("norm", norm);
    f("head", head);
  }

 private:
  template <class Tokens>
  static Integers checked_tokens(Tape<T>& tape, const Tokens& tokens) {
    const Integers checked = tape.integers(tokens);
    require<ShapeError>(checked.shape.rank() == 2, "[TransformerLm] tokens must be (batch, time), got {}",
                        checked.shape);
    return checked;
  }
  Var<T> embed(Tape<T>& tape, const Integers& tokens, const Integers& positions) const {
    const Var<T> x = token_embedding(tape, tokens);
    return dropout(position_embedding ? (*position_embedding)(x, positions) : x);
  }
  static std::optional<LearnedPositions<T>> make_positions(const TransformerLmOptions& o, Rng& rng) {
    if (o.block.rope) return std::nullopt;
    return LearnedPositions<T>(o.length, o.width, rng);
  }
};

}  // namespace xtape
