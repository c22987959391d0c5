#pragma once
// How well a model copies: greedy, free-running decoding, where every letter follows from the model's own earlier ones.

#include <xtape/layers/transformer_lm.hpp>
#include "common/copy_sequences.hpp"

namespace examples {

/// Sequences of an evaluation during training, and of the final verdict.
inline constexpr std::size_t evaluated = 1000, judged = 1000;

struct CopyScore {
  double exact_match = 0, token_accuracy = 0;        // shares of whole sequences and of letters
  std::size_t right = 0;                             // whole sequences
  std::vector<std::pair<Letters, Letters>> samples;  // asked and answered, wrong ones first
};

/// Lets the model copy `count` sequences of a part of the data. The tape is cleared.
CopyScore judge(const xtape::TransformerLm<float>& model, xtape::Tape<float>& tape, const CopySequences& sequences,
                Part part, std::size_t count);

void print_samples(const CopySequences& sequences, const CopyScore& score);

}  // namespace examples
