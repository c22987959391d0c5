#pragma once
// The settings of a training run: defaults for each task, flags, and the JSON that records them.

#include <nlohmann/json.hpp>

#include <xtape/framework/base/parallel.hpp>
#include "common/flags.hpp"
#include "common/tasks.hpp"

namespace examples {

struct Settings {
  TaskOptions task;
  std::uint64_t seed = 0, steps = 2000, evaluate_every = 100;
  std::size_t batch = 32, width = 64, heads = 4, layers = 2;
  bool attention_only = false;
  double learning_rate = 2e-3, dropout = 0, target = 0.995;
  int threads = xtape::threads();
};

/// What a task is trained with unless flags say otherwise. Throws xtape::Error if there is no such task.
Settings default_settings(const std::string& task);

/// A flag for each setting that the task has; a flag left out leaves its setting as it is.
void add_flags(Flags& flags, Settings& settings);

/// The task and the settings that add_flags names.
nlohmann::ordered_json to_json(const Settings& settings);

/// The JSON object in a file. Throws xtape::Error, whose sentence names the file.
nlohmann::ordered_json read_config(const std::string& path);

/// Makes the values of a file the defaults of the flags that add_flags added. Throws xtape::Error, whose sentence names
/// file and key, if a key is unknown or its value is of the wrong type or out of range.
void apply_config(Flags& flags, const Settings& settings, const nlohmann::ordered_json& config,
                  const std::string& path);

}  // namespace examples
