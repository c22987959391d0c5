#pragma once

#include <xtape/layers/transformer_lm.hpp>

namespace xtape {

/// The sizes of a model in GPT-2's architecture; by default those of the smallest one published.
struct Gpt2Options {
  std::size_t vocabulary = 50257, length = 1024, width = 768, heads = 12, layers = 12;
  std::size_t hidden = 0;      // width of the feed-forward layers; 0 means 4 width
  double dropout = 0;          // after embeddings and sublayers, and of the weights of attention
  bool tie_embeddings = true;  // one table for tokens and output projection
};

/// GPT-2 (Radford et al. 2019, section 2.3), tokens (batch, time) -> logits (batch, time, vocabulary): the
/// TransformerLm with learned positions, pre-norm blocks, gelu_tanh, biases everywhere and a tied output projection.
/// `generate` and caches take it as they take any TransformerLm, and init_gpt gives it the initial values of its
/// authors. Parameters have the names of TransformerLm; load_gpt2 and save_gpt2 (layers/pretrained/gpt2.hpp) know those
/// of the published files.
template <class T>
struct Gpt2 : TransformerLm<T> {
  Gpt2(const Gpt2Options& o, Rng& rng)
      : TransformerLm<T>({.vocabulary = o.vocabulary,
                          .length = o.length,
                          .width = o.width,
                          .heads = o.heads,
                          .layers = o.layers,
                          .block = {.hidden = o.hidden,
                                    .activation = Activation::gelu_tanh,
                                    .dropout = o.dropout,
                                    .attention_dropout = o.dropout},
                          .tie_embeddings = o.tie_embeddings},
                         rng) {}
};

}  // namespace xtape
