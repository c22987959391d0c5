#pragma once
// The files of a run: config.json, metrics.jsonl, and checkpoints with all that it needs to go on.

#include <fstream>
#include <optional>

#include "common/trainer.hpp"

namespace examples {

/// Where a run stands besides its weights and moments: a function of the settings and the step, as these are, so that a
/// checkpoint has the same bytes whatever came before it. There are no generators to save: data and dropout are
/// functions of the seed and the step.
struct RunState {
  std::uint64_t step = 0;  // steps done
  int at_target = 0;       // evaluations in a row at the target
  std::optional<double> best;
  std::uint64_t best_step = 0;
};

/// Keeps other processes out of a folder.
class FolderLock {
 public:
  FolderLock() = default;
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();
  /// Throws xtape::Error if another one has it.
  void take(const std::filesystem::path& folder);

 private:
  int folder_ = -1;
};

/// Without a folder in the options it keeps nothing. While it lives, no other process may train in the folder.
class RunFolder {
 public:
  /// Begins a new run in options.out. Throws xtape::Error if there is one already and it may not be overwritten.
  RunFolder(const RunOptions& options, const Training& training);
  /// Goes on with the run of options.resume: fills parameters and moments, and cuts from metrics.jsonl what comes after
  /// the checkpoint. Throws xtape::Error, before anything is changed, if its settings are not those of `training`.
  RunFolder(const RunOptions& options, const Training& training, xtape::AdamW<float>& optimizer, RunState& state);

  bool kept() const { return !folder_.empty(); }
  const std::filesystem::path& path() const { return folder_; }
  /// What the run took before this process, by its metrics.
  double seconds_before() const { return seconds_before_; }
  void add_metrics(const nlohmann::ordered_json& metrics);
  /// Writes a checkpoint; it is also the best one if the state says so.
  void save(const RunState& state, xtape::AdamW<float>& optimizer);

 private:
  void cut_metrics(std::uint64_t step);
  void open_metrics();
  const Training& training_;
  std::filesystem::path folder_;
  std::size_t keep_;
  FolderLock lock_;
  double seconds_before_ = 0;
  std::ofstream metrics_;
};

}  // namespace examples
