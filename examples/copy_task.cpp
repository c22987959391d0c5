// Trains a small transformer to copy, reverse, sort, add or recall, and judges it on what it has never met.
//
// Decoder-only: after "x1 ... xn SEP" it must say x1 ... xn, or whatever the task makes of it. The loss counts the
// answer alone.

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

constexpr const char* description =
    R"(Trains a small transformer on a task, then judges it on examples that it has never met:

  task       asked       answered
  copy       abac        abac
  reverse    abac        caba
  sort       abac        aabc
  addition   321+654     9750       123 + 456 = 0579, last digits first
  recall     a3g7c1|ga   73         the digits that stood behind g and a
  induction  kqwdz|q     wdz        what stood behind the q
)";

/// Reads the command line. Twice: --task and --config decide which flags there are, and their defaults.
int read_and_run(int argc, char** argv) {
  std::string task_name, config_path, out;
  const auto add_choice = [&](CLI::App& app) {
    app.add_option("--task", task_name, fmt::format("{}", fmt::join(task_names, ", ")))->capture_default_str();
    app.add_option("--config", config_path, "config.json of an earlier run: what it says becomes the default");
  };
  CLI::App choice;
  add_choice(choice);
  choice.set_help_flag();
  choice.allow_extras();
  choice.parse(argc, argv);
  const auto config = config_path.empty() ? nlohmann::json::object() : read_config(config_path);
  if (task_name.empty()) task_name = config.value("task", "copy");

  Settings settings = default_settings(task_name);
  CLI::App app(description, "copy_task");
  add_choice(app);
  add_flags(app, settings);
  app.add_option("--out", out, "folder for config.json, metrics.jsonl and model.safetensors");
  apply_config(app, settings, config, config_path);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  }
  return run(settings, out);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return read_and_run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "copy_task: {}\n", error.what());
    return 1;
  }
}
