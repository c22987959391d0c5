#pragma once
// The flag --profile [FILE]: where the time of a training run goes.

#include <filesystem>
#include <optional>
#include <string>

#include <xtape/framework/train/profile.hpp>
#include "common/flags.hpp"

namespace examples {

/// Throws xtape::Error if a file was named that cannot be written.
void require_writable_profile(const std::optional<std::string>& file);

void add_profile_flag(Flags& flags, std::optional<std::string>& file);

/// Watches a tape if a file was asked for, and does nothing otherwise.
class RunProfile {
 public:
  /// The empty name means profile.json in `folder`. Throws xtape::Error if the file cannot be written.
  RunProfile(xtape::Tape<float>& tape, const std::optional<std::string>& file,
             const std::filesystem::path& folder = {});
  /// Prints tables of the spans named "step" and writes the trace; a trace that cannot be written is told on stderr.
  void finish() const;

 private:
  std::optional<xtape::Profile<float>> profile_;
  std::filesystem::path file_;
};

}  // namespace examples
