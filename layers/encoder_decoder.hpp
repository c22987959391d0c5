#pragma once

#include <xtape/layers/embedding.hpp>
#include <xtape/layers/positions.hpp>
#include <xtape/layers/transformer_decoder.hpp>

namespace xtape {

struct EncoderDecoderOptions {
  std::size_t source_vocabulary = 0, target_vocabulary = 0, length = 0;  // tokens that exist; longest sequence
  std::size_t width = 64, heads = 4, layers = 2;                         // layers of the encoder, and of the decoder
  TransformerBlockOptions block = {};
  bool tie_embeddings = false;  // one table for source, target and output (Vaswani et al. 2017, section 3.4)
};

/// The transformer of Vaswani et al. 2017: source (batch, Ts) and target (batch, Tt) tokens -> logits (batch, Tt,
/// target_vocabulary), where logits[t] depends on the source and on target tokens 0 to t alone. Embeddings are
/// multiplied by sqrt(width) (section 3.4) and get sinusoidal positions; in the pre-norm form encoder and decoder end
/// with a LayerNorm.
template <class T>
struct EncoderDecoder {
  Embedding<T> source_embedding, target_embedding;
  SinusoidalPositions<T> positions;
  Dropout dropout;
  TransformerEncoder<T> encoder;
  TransformerDecoder<T> decoder;
  Linear<T> generator;

  EncoderDecoder(const EncoderDecoderOptions& o, Rng& rng)
      : source_embedding(o.source_vocabulary, o.width, rng),
        target_embedding(o.target_vocabulary, o.width, rng),
        positions(o.length, o.width),
        dropout(o.block.dropout),
        encoder(o.width, o.heads, rng, stack(o)),
        decoder(o.width, o.heads, rng, stack(o)),
        generator(o.width, o.target_vocabulary, rng) {
    if (o.tie_embeddings) {
      require<ShapeError>(o.source_vocabulary == o.target_vocabulary,
                          "[EncoderDecoder] tied embeddings need one vocabulary, got {} source and {} target tokens",
                          o.source_vocabulary, o.target_vocabulary);
      target_embedding.weight = source_embedding.weight.share();
      generator.weight = source_embedding.weight.share();
    }
    name_layers(*this);
  }

  /// `source_tokens` (batch, Ts) and `target_tokens` (batch, Tt) are true for tokens and false for padding.
  template <class Source, class Target>
  Var<T> operator()(Tape<T>& tape, const Source& source, const Target& target, const Mask& source_tokens = {},
                    const Mask& target_tokens = {}) const {
    return decode(tape, target, encode(tape, source, source_tokens), source_tokens, target_tokens);
  }
  /// The memory (batch, Ts, width).
  template <class Source>
  Var<T> encode(Tape<T>& tape, const Source& source, const Mask& source_tokens = {}) const {
    return encoder(embed(tape, source_embedding, "source", source), {.allow_keys = source_tokens});
  }
  /// Logits (batch, Tt, target_vocabulary) of target tokens given the memory.
  template <class Target>
  Var<T> decode(Tape<T>& tape, const Target& target, Var<T> memory, const Mask& source_tokens = {},
                const Mask& target_tokens = {}) const {
    const Var<T> x = embed(tape, target_embedding, "target", target);
    return generator(decoder(x, memory, {.causal = true, .allow_keys = target_tokens}, {.allow_keys = source_tokens}));
  }
  void visit(auto&& f) {
    f("source_embedding", source_embedding);
    f("target_embedding", target_embedding);
    f("positions", positions);
    f("encoder", encoder);
    f("decoder", decoder);
    f("generator", generator);
  }

 private:
  static TransformerStackOptions stack(const EncoderDecoderOptions& o) {
    return {.layers = o.layers, .block = o.block, .norm = o.block.norm == Norm::pre};
  }
  template <class Tokens>
  Var<T> embed(Tape<T>& tape, const Embedding<T>& embedding, const char* what, const Tokens& tokens) const {
    const Integers checked = tape.integers(tokens);
    require<ShapeError>(checked.shape.rank() == 2, "[EncoderDecoder] {} must be (batch, time), got {}", what,
                        checked.shape);
    const double scale = std::sqrt(static_cast<double>(embedding.weight.shape()[1]));
    return dropout(positions(embedding(tape, checked) * scale));
  }
};

}  // namespace xtape
