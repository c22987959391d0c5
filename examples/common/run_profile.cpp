#include "common/run_profile.hpp"

#include <fmt/ranges.h>

#include <xtape/framework/train/replacement.hpp>
#include "common/progress.hpp"

namespace examples {

void add_profile_flag(Flags& flags, std::optional<std::string>& file) {
  flags.add_with_or_without_value("--profile", file, "FILE",
                                  "print where the time of a step goes, op by op, and write a trace for "
                                  "ui.perfetto.dev or chrome://tracing (profile.json, in --out if there is one)");
}

void require_writable_profile(const std::optional<std::string>& file) {
  if (file && !file->empty()) const xtape::Replacement it_can_be_written(*file, "--profile: ");
}

RunProfile::RunProfile(xtape::Tape<float>& tape, const std::optional<std::string>& file,
                       const std::filesystem::path& folder)
    : file_(file && !file->empty() ? std::filesystem::path(*file) : folder / "profile.json") {
  if (!file) return;
  require_writable_profile(file_.string());
  profile_.emplace(tape);
}

void RunProfile::finish() const {
  if (!profile_) return;
  try {
    profile_->write_chrome_trace(file_);
  } catch (const xtape::Error& error) {
    fmt::print(stderr, "{}\n", error.what());  // and the run goes on: its model is worth more
  }
  bool steps = false;
  std::vector<std::string> outermost;
  for (const xtape::ProfileEntry& e : profile_->entries()) {
    if (e.kind != xtape::ProfileKind::span || e.within != 0 || e.calls == 0) continue;
    outermost.push_back(fmt::format("{} {:.2f} s", e.name, e.seconds));
    steps |= e.name == "step";
  }
  if (steps) fmt::print("\n{}\n{}", fmt::join(outermost, ", "), profile_->to_text("step"));
  const auto number = [](std::uint64_t n) { return grouped(static_cast<double>(n)); };
  fmt::print(
      "\n{}, for ui.perfetto.dev or chrome://tracing: {}\n", file_.string(),
      profile_->traced_events() < profile_->events()
          ? fmt::format("the first {} of {} events", number(profile_->traced_events()), number(profile_->events()))
          : fmt::format("{} events", number(profile_->events())));
}

}  // namespace examples
