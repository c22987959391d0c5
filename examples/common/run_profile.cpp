#include "common/run_profile.hpp"

#include <fmt/core.h>

#include <algorithm>

#include <xtape/framework/train/replacement.hpp>
#include "common/progress.hpp"

namespace examples {

void add_profile_flag(Flags& flags, std::optional<std::string>& file) {
  flags.add_with_or_without_value("--profile", file, "FILE",
                                  "print where the time of a step goes, op by op, and write a trace for "
                                  "ui.perfetto.dev or chrome://tracing (profile.json, in --out if there is one)");
}

RunProfile::RunProfile(xtape::Tape<float>& tape, const std::optional<std::string>& file,
                       const std::filesystem::path& folder)
    : file_(file && !file->empty() ? std::filesystem::path(*file) : folder / "profile.json") {
  if (!file) return;
  { const xtape::Replacement it_can_be_written(file_, "--profile: "); }
  profile_.emplace(tape);
}

void RunProfile::finish() const {
  if (!profile_) return;
  const auto& entries = profile_->entries();
  const bool steps = std::any_of(entries.begin(), entries.end(), [](const xtape::ProfileEntry& e) {
    return e.kind == xtape::ProfileKind::span && e.name == "step" && e.calls > 0;
  });
  profile_->write_chrome_trace(file_);
  fmt::print("\n{}", steps ? profile_->to_text("step") : "no step was made: there is nothing to profile\n");
  const auto number = [](std::uint64_t n) { return grouped(static_cast<double>(n)); };
  fmt::print(
      "\n{}, for ui.perfetto.dev or chrome://tracing: {}\n", file_.string(),
      profile_->traced_events() < profile_->events()
          ? fmt::format("the first {} of {} events", number(profile_->traced_events()), number(profile_->events()))
          : fmt::format("{} events", number(profile_->events())));
}

}  // namespace examples
