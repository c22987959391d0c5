// Trains a small transformer to copy, reverse, sort, add or recall, and judges it on what it has never met.
//
// Decoder-only: after "x1 ... xn SEP" it must say x1 ... xn, or whatever the task makes of it. The loss counts the
// answer alone.

#include <fmt/ranges.h>

#include <xtape/xtape.hpp>
#include "common/training.hpp"

namespace {

using namespace xtape;
using namespace examples;

int run(const Settings& settings, const RunOptions& options) {
  const auto task = make_task(settings.task);
  auto model = make_model(settings, *task);
  fmt::print("{}\n", describe(model));
  if (settings.steps == 0) return 0;

  const TrainingResult result = train(training_of(model, *task, settings), options);
  if (result.stopped) return result.exit_code;
  if (!result.folder.empty()) save_safetensors(result.folder / "model.safetensors", parameters<float>(model));

  Tape<float> tape;
  const Score score = judge(model, tape, *task, Part::verdict, judged, settings.seed);
  fmt::print("\ntrained {} steps in {:.1f} s", result.steps, result.seconds);
  if (result.seconds_a_step > 0) fmt::print(" ({:.2f} ms a step, evaluation apart)", 1000 * result.seconds_a_step);
  fmt::print("\n{}\n\n", verdict_text(*task, score));
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

/// Reads the command line. Twice: --task, --config and --resume decide which flags there are, and their defaults.
int read_and_run(int argc, char** argv) {
  std::string task_name, config_path;
  RunOptions options;
  const auto add_choice = [&](Flags& flags) {
    flags.add("--task", task_name, fmt::format("{}", fmt::join(task_names, ", ")));
    flags.add("--config", config_path, "config.json of an earlier run: what it says becomes the default");
    add_run_flags(flags, options);
  };
  Flags choice("", "copy_task");
  add_choice(choice);
  choice.parse_known(argc, argv);
  if (choice.given("--task") || choice.given("--config")) check_run_flags(choice, options);
  auto config = nlohmann::ordered_json::object();
  if (!config_path.empty()) config = read_config(config_path);
  if (!options.resume.empty()) config = resumed_config(options.resume);
  if (task_name.empty()) task_name = config.value("task", "copy");

  Settings settings = default_settings(task_name);
  Flags flags(description, "copy_task");
  add_choice(flags);
  add_flags(flags, settings);
  apply_config(flags, settings, config, options.resume.empty() ? config_path : options.resume);
  if (const auto exit_code = flags.parse(argc, argv)) return *exit_code;
  check_run_flags(flags, options);
  return run(settings, options);
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
