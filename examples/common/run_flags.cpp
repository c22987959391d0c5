#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "common/run_profile.hpp"
#include "common/trainer.hpp"

namespace examples {

void add_run_flags(Flags& flags, RunOptions& options) {
  flags.add("--out", options.out, "folder for config.json, metrics.jsonl, checkpoints and model.safetensors");
  flags.add("--resume", options.resume,
            "a run's folder, or one of its checkpoints: goes on from there, with its settings");
  flags.add_switch("--overwrite", options.overwrite, "a new run may take the place of the one in --out");
  flags.add("--keep", options.keep, "newest checkpoints that are kept, besides the best",
            {.allowed = Range{1, 1'000'000}});
  flags.add("--stop_after", options.stop_after, "save and end after this step; --resume then goes on",
            {.allowed = Range{1, 1'000'000'000}, .show_default = false});
  add_profile_flag(flags, options.profile);
}

void check_run_flags(const Flags& flags, const RunOptions& options) {
  if (options.resume.empty()) {
    xtape::require(options.stop_after == 0 || !options.out.empty(),
                   "--stop_after needs --out: without a folder nothing is kept to go on with");
    return;
  }
  constexpr std::array allowed = {"--threads", "--keep", "--stop_after", "--profile"};
  for (const std::string& name : flags.given())
    xtape::require(name == "--resume" || std::find(allowed.begin(), allowed.end(), name) != allowed.end(),
                   "{} does not go with --resume: a run goes on with its own settings, and only {} may be given", name,
                   fmt::join(allowed, ", "));
}

}  // namespace examples
