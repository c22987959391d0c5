#pragma once
// The training loop that programs share: steps, evaluations, log lines, checkpoints, resume and signals.
//
//   step 250/2000 | loss 1.912 | val 1.980 | norm 0.81 | lr 9.1e-04 | 31.2 ms | 24,600 tok/s

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include <xtape/framework/ops/losses.hpp>
#include <xtape/framework/train/optimizer.hpp>
#include "common/flags.hpp"

namespace examples {

/// How a run is kept and stopped: the flags that every trainer has.
struct RunOptions {
  std::string out = {};          // folder for config.json, metrics.jsonl and checkpoints; empty: nothing is kept
  std::string resume = {};       // instead of `out`: a run's folder, or one of its checkpoints, from which it goes on
  bool overwrite = false;        // a new run may take the place of one in `out`
  std::size_t keep = 2;          // newest checkpoints that stay, besides the best
  std::uint64_t stop_after = 0;  // end after so many steps of the whole run, as a signal would; 0 = never
  std::optional<std::string> profile = {};  // file for a trace of where the time goes, see run_profile.hpp
};

void add_run_flags(Flags& flags, RunOptions& options);
/// After the command line was read: with --resume only --threads, --keep, --stop_after and --profile may be given,
/// since all other settings are those of the checkpoint; and --stop_after needs a folder. Throws xtape::Error, a
/// sentence with the flag.
void check_run_flags(const Flags& flags, const RunOptions& options);

/// The forward pass of one micro-batch.
struct MicroBatch {
  xtape::Var<float> loss;
  std::size_t counted;  // targets that the loss is over
  std::size_t rows;     // sequences: tells dropout where the next micro-batch begins
  std::size_t tokens;   // read, for the rate in the log
};

/// What an evaluation finds. Ties go to the earlier one.
struct Evaluation {
  double to_beat = 0;      // lower is better: a validation loss, or a share of wrong answers
  bool at_target = false;  // two in a row end the training
  std::string text = {};   // in the log line: "val 1.980"
  nlohmann::ordered_json metrics = nlohmann::ordered_json::object();  // in the line of metrics.jsonl
  std::string sample = {};                                            // shown below the log line, if any
};

/// What differs from program to program. All that is random in `forward` is a function of the step and the part, so a
/// run that is resumed meets the same data.
struct Training {
  xtape::ParameterList<float> model;
  nlohmann::ordered_json config;    // settings: in config.json and, all but "threads", in every checkpoint
  xtape::AdamWOptions optimizer;    // the rate apart
  nlohmann::ordered_json schedule;  // settings of `learning_rate`, for the checkpoints
  std::function<double(std::uint64_t step)> learning_rate;
  std::uint64_t seed = 0, steps = 0, evaluate_every = 100;
  std::size_t accumulation = 1;  // micro-batches a step, always so many: none is left over
  double clip = 1;               // greatest norm of the gradients; 0: no clipping
  int threads = 1;
  std::function<MicroBatch(xtape::Tape<float>&, std::uint64_t step, std::size_t part, xtape::Reduction)> forward;
  std::function<Evaluation(xtape::Tape<float>&)> evaluate;  // in evaluation mode and under no_grad
};

struct TrainingResult {
  std::uint64_t steps = 0;       // of the whole run
  double seconds = 0;            // of the whole run, all in all
  double seconds_a_step = 0;     // of this process, evaluation apart; 0 if it made none
  bool stopped = false;          // by a signal or stop_after: all is saved, and --resume goes on
  std::filesystem::path folder;  // the run's: options.out or where it was resumed; empty: nothing is kept
  int exit_code = 0;             // of a program that was stopped: 128 + the signal, 0 after stop_after
};

/// Trains to the end, to the target, or to a stop. Shows a line about each evaluation, begun with `title`. With
/// options.out a checkpoint is written at every evaluation and at a stop; SIGINT and SIGTERM are a stop at the end of
/// the step, and the second of them ends the program at once. With options.resume it begins where that checkpoint
/// ended, in its run's folder. The step's gradient is that of the mean over the targets of all micro-batches. Sets the
/// number of threads.
TrainingResult train(const Training& training, const RunOptions& options = {}, const std::string& title = "");

/// The settings in the checkpoint that `resume` means, with this machine's "threads": what a program reads before it
/// makes the model. Throws xtape::Error, whose sentence names the folder, if there is none.
nlohmann::ordered_json resumed_config(const std::filesystem::path& resume);
/// The folder of the newest checkpoint (or the best one) of a run, or `run` itself if it is a checkpoint.
std::filesystem::path checkpoint_of(const std::filesystem::path& run, bool best = false);

}  // namespace examples
