#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "common/trainer.hpp"

namespace examples {

void add_run_flags(CLI::App& app, RunOptions& options) {
  app.add_option("--out", options.out, "folder for config.json, metrics.jsonl, checkpoints and model.safetensors");
  app.add_option("--resume", options.resume,
                 "a run's folder, or one of its checkpoints: goes on from there, with its settings");
  app.add_flag("--overwrite", options.overwrite, "a new run may take the place of the one in --out");
  app.add_option("--keep", options.keep, "newest checkpoints that are kept, besides the best")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--stop_after", options.stop_after, "save and end after this step; --resume then goes on")
      ->check(CLI::Range(1, 1'000'000'000));
}

void check_run_flags(const CLI::App& app, const RunOptions& options) {
  if (options.resume.empty()) {
    xtape::require(options.stop_after == 0 || !options.out.empty(),
                   "--stop_after needs --out: without a folder nothing is kept to go on with");
    return;
  }
  constexpr std::array allowed = {"--threads", "--keep", "--stop_after"};
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name();
    const bool free = name == "--resume" || std::find(allowed.begin(), allowed.end(), name) != allowed.end();
    xtape::require(option->count() == 0 || free,
                   "{} does not go with --resume: a run goes on with its own settings, and only {} may be given", name,
                   fmt::join(allowed, ", "));
  }
}

}  // namespace examples
