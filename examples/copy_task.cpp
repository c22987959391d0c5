// Trains a small transformer to copy (or reverse, sort, add, recall, repeat), and judges it on what it has never met.
//
// Decoder-only: after "x1 ... xn SEP" it must say x1 ... xn. The loss counts the answer alone.

#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>

#include <xtape/xtape.hpp>
#include "common/training.hpp"

namespace {

using namespace xtape;
using namespace examples;

/// Files of a run; writes nothing without a folder.
class Record {
 public:
  Record(std::string folder, const Settings& settings) : folder_(std::move(folder)) {
    if (folder_.empty()) return;
    std::filesystem::create_directories(folder_);
    open("config.json") << to_json(settings).dump(2) << "\n";
    metrics_ = open("metrics.jsonl");
  }
  void evaluation(const nlohmann::ordered_json& metrics) {
    if (metrics_.is_open()) metrics_ << metrics.dump() << std::endl;
  }
  void model(const ParameterList<float>& list) const {
    if (!folder_.empty()) save_safetensors(folder_ / "model.safetensors", list);
  }

 private:
  std::ofstream open(const char* name) const {
    std::ofstream file(folder_ / name);
    require(file.good(), "{} cannot be written", (folder_ / name).string());
    return file;
  }
  std::filesystem::path folder_;
  std::ofstream metrics_;
};

int run(const Settings& settings, const std::string& out) {
  const auto task = make_task(settings.task);
  auto model = make_model(settings, *task);
  Record record(out, settings);
  fmt::print("{}\n", describe(model));

  const TrainingResult result = train(model, *task, settings, "", [&](const auto& m) { record.evaluation(m); });
  record.model(parameters<float>(model));

  Tape<float> tape;
  const Score score = judge(model, tape, *task, Part::verdict, judged, settings.seed);
  fmt::print("\ntrained {} steps in {:.1f} s ({:.2f} ms a step, evaluation apart)\n", result.steps, result.seconds,
             1000 * result.seconds_a_step);
  fmt::print("{}\n\n", verdict_text(*task, score));
  print_samples(*task, score);
  return score.exact_match >= 0.99 ? 0 : 2;
}

/// --task and --config, which decide the defaults of all other flags.
struct Choice {
  std::string task, config;
  void add_flags(CLI::App& app) {
    app.add_option("--task", task, fmt::format("{}; it decides which flags there are, and their defaults", fmt::join(task_names, ", ")));
    app.add_option("--config", config, "a config.json of an earlier run, whose values become the defaults");
  }
};

}  // namespace

int main(int argc, char** argv) {
  try {
    Choice choice;
    CLI::App first;
    first.set_help_flag();
    first.allow_extras();
    choice.add_flags(first);
    first.parse(argc, argv);
    nlohmann::json config;
    if (!choice.config.empty()) config = read_config(choice.config);
    if (choice.task.empty()) choice.task = "copy";

    Settings settings = default_settings(choice.task);
    std::string out;
    CLI::App app(
        "Trains a small transformer, then judges it on examples that it has never met.",
        "copy_task");
    choice.add_flags(app);
    add_flags(app, settings);
    app.add_option("--out", out, "folder for config.json, metrics.jsonl and model.safetensors");
    if (!choice.config.empty()) apply_config(app, settings, config, choice.config);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : 1;
    }
    return run(settings, out);
  } catch (const std::exception& error) {
    fmt::print(stderr, "copy_task: {}\n", error.what());
    return 1;
  }
}
