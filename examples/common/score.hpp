#pragma once
// How well a model does a task: greedy, free-running decoding, where every token follows from the model's own earlier
// ones.

#include <xtape/layers/transformer_lm.hpp>
#include "common/task.hpp"

namespace examples {

/// Examples of an evaluation during training, and of the final verdict.
inline constexpr std::size_t evaluated = 1000, judged = 1000;

/// An example, and its tokens as the model said those that were asked for.
struct Sample {
  Example example;
  Tokens said;
  bool right() const { return said == example.tokens; }
};

struct Score {
  double exact_match = 0, token_accuracy = 0;  // shares of whole examples and of the tokens asked for
  std::size_t right = 0;                       // whole examples
  std::vector<Sample> samples;                 // wrong ones first
};

/// Lets the model answer `count` examples of a part of the data. The tape is cleared.
Score judge(const xtape::TransformerLm<float>& model, xtape::Tape<float>& tape, const Task& task, Part part,
            std::size_t count, std::uint64_t seed);

/// "copies 996 of 1000 sequences that it never met (99.6%; letters: 99.95%)"
std::string verdict_text(const Task& task, const Score& score);
/// What was given, and what the model said of what was asked for.
void print_samples(const Task& task, const Score& score);

}  // namespace examples
