#pragma once

#include <xtape/layers/embedding.hpp>
#include <xtape/layers/positions.hpp>
#include <xtape/layers/transformer_block.hpp>

namespace xtape {

struct TransformerLmOptions {
  std::size_t vocabulary = 0, length = 0;  // tokens that exist; longest sequence
  std::size_t width = 64, heads = 4, layers = 2;
  TransformerBlockOptions block = {};
};

/// A decoder-only language model: tokens (batch, time) -> logits (batch, time, vocabulary), where logits[t] depends on
/// tokens 0 to t alone. Token and position embeddings, causal blocks, a last LayerNorm (in the pre-norm form) and an
/// output projection without bias.
template <class T>
struct TransformerLm {
  Embedding<T> token_embedding;
  LearnedPositions<T> position_embedding;
  Dropout dropout;
  std::vector<TransformerBlock<T>> blocks;
  std::optional<LayerNorm<T>> norm;
  Linear<T> head;

  TransformerLm(const TransformerLmOptions& o, Rng& rng)
      : token_embedding(o.vocabulary, o.width, rng),
        position_embedding(o.length, o.width, rng),
        dropout(o.block.dropout),
        head(o.width, o.vocabulary, rng, {.bias = false}) {
    require<ShapeError>(o.layers > 0, "[TransformerLm] expected at least one layer, got 0");
    blocks.reserve(o.layers);
    for (std::size_t i = 0; i < o.layers; ++i) blocks.emplace_back(o.width, o.heads, rng, o.block);
    if (o.block.norm == Norm::pre) norm.emplace(o.width);
    name_layers(*this);
  }

  /// `attend` adds to the causal mask, for instance {.allow_keys = tape.lengths(lengths, time)} for padded batches.
  template <class Tokens>
  Var<T> operator()(Tape<T>& tape, const Tokens& tokens, Attend<T> attend = {}) const {
    attend.causal = true;
    const Integers checked = tape.integers(tokens);
    require<ShapeError>(checked.shape.rank() == 2, "[TransformerLm] tokens must be (batch, time), got {}",
                        checked.shape);
    Var<T> x = dropout(position_embedding(token_embedding(tape, checked)));
    for (const auto& block : blocks) x = block(x, attend);
    return head(norm ? (*norm)(x) : x);
  }
  void visit(auto&& f) {
    f("token_embedding", token_embedding);
    f("position_embedding", position_embedding);
    f("blocks", blocks);
    f("norm", norm);
    f("head", head);
  }
};

}  // namespace xtape
