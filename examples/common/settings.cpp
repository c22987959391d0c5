#include "common/settings.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace examples {
namespace {

bool is_task(const std::string& name) {
  return std::find(task_names.begin(), task_names.end(), name) != task_names.end();
}

constexpr std::size_t longest_allowed = 128;

std::string to_text(Lengths length) {
  return length.shortest == length.longest ? fmt::format("{}", length.longest)
                                           : fmt::format("{}..{}", length.shortest, length.longest);
}

/// "4..12", or "8" for one length; nothing if it is neither.
std::optional<Lengths> read_lengths(const std::string& text) {
  const auto number = [](std::string_view digits) {  // 0 if anything but digits stands there
    std::size_t n = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    return error == std::errc() && end == digits.data() + digits.size() ? n : 0;
  };
  const std::size_t dots = text.find("..");
  const std::size_t shortest = number(std::string_view(text).substr(0, dots));
  const std::size_t longest = dots == std::string::npos ? shortest : number(std::string_view(text).substr(dots + 2));
  if (shortest < 1 || longest < shortest || longest > longest_allowed) return {};
  return Lengths{shortest, longest};
}

/// Calls f(name, setting, description, what is allowed) for every setting that the task has.
void visit(auto& s, auto&& f) {
  const std::string& task = s.task.name;
  f("seed", s.seed, "of weights, data and dropout", Range{0, 1'000'000'000});
  f("steps", s.steps, "training steps at most; 0: only the model is shown", Range{0, 10'000'000});
  f("evaluate_every", s.evaluate_every, "steps between evaluations, at each of which --out gets a checkpoint",
    Range{1, 10'000'000});
  f("batch", s.batch, "sequences a step", Range{1, 65'536});
  f("width", s.width, "of the model, a multiple of --heads", Range{1, 8192});
  f("heads", s.heads, "attention heads", Range{1, 512});
  f("layers", s.layers, "transformer blocks", Range{1, 128});
  f("attention_only", s.attention_only,
    s.attention_only ? "blocks without a feed-forward layer: on, --attention_only=false turns it off"
                     : "blocks without a feed-forward layer",
    Anything{});
  if (task == "addition") {
    f("digits", s.task.digits, "of each of the two numbers", Range{1, 64});
  } else {
    f("length", s.task.length,
      task == "recall"      ? "pairs of a list, shortest..longest"
      : task == "induction" ? "letters before the repetition, shortest..longest"
                            : "letters to " + task + ", shortest..longest",
      Anything{});
    f("letters", s.task.letters, "size of the alphabet", Range{2, 26});
    if (task == "recall") f("queries", s.task.queries, "values asked for", Range{1, 26});
  }
  f("learning_rate", s.learning_rate, "at its peak", Range{0.0, 10.0});
  f("dropout", s.dropout, "probability", Range{0.0, 0.99});
  f("threads", s.threads, "worker threads; does not change the result", Range{1, 1024});
  f("target", s.target, "stop after two evaluations with this exact match", Range{0.0, 1.0});
}

}  // namespace

Settings default_settings(const std::string& task) {
  xtape::require(is_task(task), "there is no task {}; there are {}", task, fmt::join(task_names, ", "));
  Settings s;
  s.task.name = task;
  if (task == "sort") {
    s.task.length = {4, 10}, s.batch = 64, s.heads = 8;
  } else if (task == "addition") {
    s.batch = 128, s.target = 0.998;
  } else if (task == "recall") {
    // Few letters and no feed-forward layers: with more of either, most seeds guess among the values of the list for
    // thousands of steps before they find out how to look one up.
    s.task.length = {4, 8}, s.task.letters = 10;
    s.attention_only = true, s.batch = 64, s.learning_rate = 4e-3, s.steps = 3000, s.target = 0.998;
  } else if (task == "induction") {
    s.task.length = {8, 16};
    s.attention_only = true, s.batch = 64, s.learning_rate = 4e-3, s.steps = 1500, s.target = 0.998;
  }
  return s;
}

void add_flags(Flags& flags, Settings& settings) {
  visit(settings,
        [&]<class T>(const std::string& name, T& setting, const std::string& description, const Allowed& allowed) {
          const std::string flag = "--" + name;
          if constexpr (std::is_same_v<T, bool>) {
            flags.add_switch(flag, setting, description);
          } else if constexpr (std::is_same_v<T, Lengths>) {
            const auto read = [&setting](const std::string& text) {
              const auto length = read_lengths(text);
              xtape::require(length.has_value(),
                             "must be two lengths such as 4..12, from 1 to {} and the shorter first, got {}",
                             longest_allowed, text);
              setting = *length;
            };
            flags.add_read(flag, read, to_text(setting), description);
          } else {
            flags.add(flag, setting, description, {.allowed = allowed});
          }
        });
}

nlohmann::ordered_json to_json(const Settings& settings) {
  nlohmann::ordered_json json = {{"task", settings.task.name}};
  visit(settings, [&]<class T>(const std::string& name, const T& setting, const std::string&, const Allowed&) {
    if constexpr (std::is_same_v<T, Lengths>)
      json[name] = to_text(setting);
    else
      json[name] = setting;
  });
  return json;
}

nlohmann::ordered_json read_config(const std::string& path) {
  std::ifstream file(path);
  xtape::require(file.good() && !std::filesystem::is_directory(path), "{} cannot be read", path);
  nlohmann::ordered_json config;
  try {
    config = nlohmann::ordered_json::parse(file);
  } catch (const nlohmann::json::exception& error) {
    throw xtape::Error(fmt::format("{} is no JSON: {}", path, error.what()));
  }
  xtape::require(config.is_object(), "{} must hold a JSON object such as {{\"steps\": 1000}}, got {}", path,
                 config.type_name());
  if (const auto task = config.find("task"); task != config.end())
    xtape::require(task->is_string() && is_task(task->get<std::string>()), "{}: task must be one of {}, got {}", path,
                   fmt::join(task_names, ", "), task->dump());
  return config;
}

void apply_config(Flags& flags, const Settings& settings, const nlohmann::ordered_json& config,
                  const std::string& path) {
  const nlohmann::ordered_json defaults = to_json(settings);
  for (const auto& [key, value] : config.items()) {
    if (key == "task") continue;
    xtape::require(defaults.contains(key), "{}: {} is no setting of the task {}", path, key, settings.task.name);
    const nlohmann::ordered_json wanted = defaults[key];
    const auto require_kind = [&](bool ok, const char* kind) {
      xtape::require(ok, "{}: {} must be {}, got {}", path, key, kind, value.dump());
    };
    if (wanted.is_string()) require_kind(value.is_string(), "a text");
    if (wanted.is_boolean()) require_kind(value.is_boolean(), "true or false");
    if (wanted.is_number_float()) require_kind(value.is_number(), "a number");
    if (wanted.is_number_integer()) require_kind(value.is_number_integer(), "a whole number");
    try {
      flags.set_default("--" + key, value.is_string() ? value.get<std::string>() : value.dump());
    } catch (const xtape::Error& error) {
      throw xtape::Error(fmt::format("{}: {}", path, error.what()));
    }
  }
}

}  // namespace examples
