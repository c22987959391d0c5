#pragma once
// The model, its batches, and how well it predicts.

#include <xtape/layers/transformer_lm.hpp>
#include "char_lm/settings.hpp"
#include "common/trainer.hpp"

namespace examples::char_lm {

using Model = xtape::TransformerLm<float>;

/// GPT-2's architecture with its first weights: learned positions, pre-norm, GELU, one table for tokens and logits.
Model make_model(const Settings& settings, std::size_t vocabulary);

/// The training of a model on a text.
Training make_training(Model& model, const Settings& settings, const Text& text, nlohmann::ordered_json config);

struct ValidationLoss {
  double mean = 0;            // nats per character
  std::size_t predicted = 0;  // characters
};
/// Of a text in windows of block_size side by side: all of them, or so many, evenly spread, as make up about
/// `at_most` characters. Under no_grad and in evaluation mode.
ValidationLoss loss_over(const Model& model, xtape::Tape<float>& tape, std::span<const std::int32_t> text,
                         std::size_t block_size, std::size_t at_most);
/// Of all windows, the last of which may be shorter.
ValidationLoss loss_over_all(const Model& model, std::span<const std::int32_t> text, std::size_t block_size);

}  // namespace examples::char_lm
