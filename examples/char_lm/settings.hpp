#pragma once
// The settings of a run, by the names that they have in nanoGPT, and the JSON that is kept with a model.

#include <nlohmann/json.hpp>

#include <xtape/framework/base/parallel.hpp>
#include "char_lm/text.hpp"
#include "common/flags.hpp"

namespace examples::char_lm {

/// nanoGPT's configuration for a CPU.
struct Settings {
  std::size_t n_layer = 4, n_head = 4, n_embd = 128, block_size = 64;
  double dropout = 0;
  bool bias = false;
  std::size_t batch_size = 12, gradient_accumulation_steps = 1;
  std::uint64_t max_iters = 2000, eval_interval = 250;
  double learning_rate = 1e-3, min_lr = 1e-4;
  std::uint64_t warmup_iters = 100;
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.99, grad_clip = 1;
  std::uint64_t seed = 0;
  int threads = xtape::threads();
};

/// Adds a flag for each setting. `settings` must outlive the parsing.
void add_flags(Flags& flags, Settings& settings);
/// Throws xtape::Error where settings do not fit each other.
void check(const Settings& settings);

/// What a model is kept with: the settings, where its text was and what it was like, and its vocabulary.
nlohmann::ordered_json to_json(const Settings& settings, const std::string& text_path, const Text& text);
/// A setting, or another entry, that is missing or of another kind is an xtape::Error.
Settings settings_of(const nlohmann::ordered_json& config);
Vocabulary vocabulary_of(const nlohmann::ordered_json& config);
/// Where the text was. Throws xtape::Error if nothing is there any more.
std::string text_path_of(const nlohmann::ordered_json& config);
/// Throws xtape::Error unless it is the text that the configuration is about.
void require_same_text(const nlohmann::ordered_json& config, const Text& text);

}  // namespace examples::char_lm
