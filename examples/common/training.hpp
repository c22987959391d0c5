#pragma once
// The training of a language model on a task.

#include <functional>
#include <nlohmann/json.hpp>

#include <xtape/layers/transformer_lm.hpp>
#include "common/score.hpp"
#include "common/settings.hpp"

namespace examples {

/// The model that the settings ask for, with its first weights.
xtape::TransformerLm<float> make_model(const Settings& settings, const Task& task);

struct TrainingResult {
  std::uint64_t steps = 0;
  double seconds = 0, seconds_a_step = 0;  // all in all; evaluation apart
};

/// Trains until two evaluations in a row reach the target, or for all steps. Shows a line about each evaluation, begun
/// with `title`; `on_evaluation` gets its numbers. Sets the number of threads.
TrainingResult train(xtape::TransformerLm<float>& model, const Task& task, const Settings& settings,
                     const std::string& title = "",
                     const std::function<void(const nlohmann::ordered_json&)>& on_evaluation = {});

}  // namespace examples
