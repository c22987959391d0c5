#pragma once
// The training of a language model on a task.

#include <xtape/layers/transformer_lm.hpp>
#include "common/score.hpp"
#include "common/settings.hpp"
#include "common/trainer.hpp"

namespace examples {

/// The model that the settings ask for, with its first weights.
xtape::TransformerLm<float> make_model(const Settings& settings, const Task& task);

/// Its training: until two evaluations in a row reach the target, or for all steps. Refers to the model and the task.
Training training_of(xtape::TransformerLm<float>& model, const Task& task, const Settings& settings);

}  // namespace examples
