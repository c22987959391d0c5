#pragma once
// Checkpoints of a run: folders `checkpoint-<step>` of model.safetensors, optimizer.safetensors and state.json, and the
// small files `latest` and `best`, each of which holds the name of one.
//
// At every moment, whenever the process or the machine dies, `latest` means a whole checkpoint from the first one on: a
// folder is written under another name, with all its files flushed to the disk, before it gets its own; after that
// `best` and `latest` are replaced; after that older checkpoints go. What a killed process left unfinished has
// ".writing." in its name, is never read, and is removed by the next save. (The first save gives a folder its name and
// then writes `latest`; in between the only checkpoint there is the latest one.)

#include <cstdint>
#include <filesystem>
#include <string>

#include <xtape/framework/nn/parameter_list.hpp>

namespace xtape {

struct CheckpointOptions {
  std::size_t keep = 2;  // so many of the newest stay, at least 1, besides the best and those of later steps
  bool best = false;     // this is the best so far
};

/// Writes the checkpoint of a step into the folder of a run, which must exist. A checkpoint of the same step is
/// replaced. `optimizer` is the optimizer's state(); `state` is text (JSON, say) that is given back as it is. Throws
/// Error, a sentence with the file, if anything cannot be written; the checkpoints before are then as they were.
template <class T>
void save_checkpoint(const std::filesystem::path& run, std::uint64_t step, const ParameterList<T>& model,
                     const ParameterList<T>& optimizer, const std::string& state,
                     const CheckpointOptions& options = {});

/// Fills both lists from a checkpoint's folder and returns its state. Everything is checked first: that the three files
/// are whole and were saved together, all names and shapes. What does not fit is a FormatError with the folder, the
/// reason and another checkpoint to take; then nothing was changed.
template <class T>
std::string load_checkpoint(const std::filesystem::path& checkpoint, const ParameterList<T>& model,
                            const ParameterList<T>& optimizer);

/// The state of a checkpoint, whose files are checked as by load_checkpoint, but not against a model.
std::string checkpoint_state(const std::filesystem::path& checkpoint);

/// The folders of the checkpoints that `latest` and `best` mean. Throws Error if there is none, and FormatError if it
/// is damaged; the sentence names another one that is whole, which is not taken silently.
std::filesystem::path latest_checkpoint(const std::filesystem::path& run);
std::filesystem::path best_checkpoint(const std::filesystem::path& run);

/// True for a path that ends in checkpoint-<step>.
bool is_checkpoint(const std::filesystem::path& path);
/// True if the folder has a `latest` or any checkpoint.
bool has_checkpoints(const std::filesystem::path& run);
/// Removes the checkpoints of a run, and what a save left unfinished.
void remove_checkpoints(const std::filesystem::path& run);

}  // namespace xtape
