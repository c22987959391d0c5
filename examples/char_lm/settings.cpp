#include "char_lm/settings.hpp"

#include <fmt/format.h>

#include <filesystem>

#include <xtape/framework/base/error.hpp>
#include "common/utf8.hpp"

namespace examples::char_lm {

using xtape::require;

namespace {

/// Calls f(name, setting, description, what is allowed) for every setting.
void visit(auto& s, auto&& f) {
  f("n_layer", s.n_layer, "transformer blocks", Range{1, 128});
  f("n_head", s.n_head, "attention heads", Range{1, 512});
  f("n_embd", s.n_embd, "width of the model, a multiple of --n_head", Range{1, 8192});
  f("block_size", s.block_size, "characters that the model sees at most", Range{1, 16'384});
  f("dropout", s.dropout, "probability", Range{0.0, 0.99});
  f("bias", s.bias, "of linear layers and norms: true or false", Anything{});
  f("batch_size", s.batch_size, "windows of block_size characters a micro-batch", Range{1, 65'536});
  f("gradient_accumulation_steps", s.gradient_accumulation_steps, "micro-batches a step", Range{1, 65'536});
  f("max_iters", s.max_iters, "training steps", Range{1, 10'000'000});
  f("eval_interval", s.eval_interval, "steps from one evaluation to the next", Range{1, 10'000'000});
  f("learning_rate", s.learning_rate, "at its peak", Range{0.0, 10.0});
  f("min_lr", s.min_lr, "learning rate at the end of half a cosine", Range{0.0, 10.0});
  f("warmup_iters", s.warmup_iters, "steps in which the rate rises to its peak", Range{0, 10'000'000});
  f("weight_decay", s.weight_decay, "of matrices and embeddings, not of biases and gains", Range{0.0, 10.0});
  f("beta1", s.beta1, "of AdamW: share of the old in the average of gradients", Range{0.0, 0.999999});
  f("beta2", s.beta2, "of AdamW: the same for their squares", Range{0.0, 0.999999});
  f("grad_clip", s.grad_clip, "greatest norm of the gradients; 0: no clipping", Range{0.0, 1e9});
  f("seed", s.seed, "of weights, windows, dropout and samples", Range{0, 1'000'000'000});
  f("threads", s.threads, "worker threads; does not change the result", Range{1, 1024});
}

/// The entry of a configuration, as a T.
template <class T>
T entry(const nlohmann::ordered_json& config, const std::string& key) {
  const auto found = config.find(key);
  require(found != config.end(), "the configuration of this run has no {}: it is none of char_lm", key);
  try {
    return found->get<T>();
  } catch (const nlohmann::json::exception&) {
    throw xtape::Error(fmt::format("{} in the configuration of this run cannot be {}", key, found->dump()));
  }
}

}  // namespace

void add_flags(Flags& flags, Settings& settings) {
  visit(settings, [&](const std::string& name, auto& setting, const char* description, const Allowed& allowed) {
    flags.add("--" + name, setting, description, {.allowed = allowed});
  });
}

void check(const Settings& s) {
  require(s.n_embd % s.n_head == 0, "--n_embd must be a multiple of --n_head, got {} and {}", s.n_embd, s.n_head);
  require(s.min_lr <= s.learning_rate, "--min_lr must not be above --learning_rate, got {} and {}", s.min_lr,
          s.learning_rate);
}

nlohmann::ordered_json to_json(const Settings& settings, const std::string& text_path, const Text& text) {
  nlohmann::ordered_json json;
  visit(settings, [&](const char* name, const auto& setting, const char*, const Allowed&) { json[name] = setting; });
  json["text"] = text_path;
  json["characters"] = text.tokens.size();
  json["fingerprint"] = text.fingerprint;
  json["vocabulary"] = text.vocabulary.text();
  return json;
}

Settings settings_of(const nlohmann::ordered_json& config) {
  Settings settings;
  visit(settings,
        [&]<class T>(const char* name, T& setting, const char*, const Allowed&) { setting = entry<T>(config, name); });
  return settings;
}

Vocabulary vocabulary_of(const nlohmann::ordered_json& config) {
  return Vocabulary(code_points(entry<std::string>(config, "vocabulary")));
}

std::string text_path_of(const nlohmann::ordered_json& config) {
  const auto path = entry<std::string>(config, "text");
  require(std::filesystem::exists(path), "this run learns from {}, which is gone: put the text back there", path);
  return path;
}

void require_same_text(const nlohmann::ordered_json& config, const Text& text) {
  require(entry<std::string>(config, "fingerprint") == text.fingerprint,
          "{} is not the text any more that this run began with, which had {} characters: put that one back there",
          entry<std::string>(config, "text"), entry<std::size_t>(config, "characters"));
}

}  // namespace examples::char_lm
