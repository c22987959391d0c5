#include "common/trainer.hpp"

#include <algorithm>
#include <cmath>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/train/gradients.hpp>
#include <xtape/framework/train/require_finite.hpp>
#include "common/progress.hpp"
#include "common/run_folder.hpp"
#include "common/run_profile.hpp"
#include "common/stop_signal.hpp"

namespace examples {

using namespace xtape;

namespace {

struct StepOutcome {
  double loss = 0, norm = 0;
  std::size_t tokens = 0;
};

MicroBatch forward_of(const Training& training, Tape<float>& tape, std::uint64_t step, std::size_t part,
                      Reduction reduction) {
  const auto here = tape.span("forward");
  return training.forward(tape, step, part, reduction);
}

/// Returns the norm of the gradients.
double backward_of(Var<float> loss, const ParameterList<float>& parameters) {
  {
    const auto here = loss.tape().span("backward");
    loss.tape().backward(loss);
  }
  const auto here = loss.tape().span("require finite");
  return require_finite(loss, parameters);
}

/// One update. Of several micro-batches each adds the gradient of its sum, and the whole is divided once, by the
/// targets of all: as one batch that holds them (see gradients.hpp).
StepOutcome training_step(const Training& training, Tape<float>& tape, AdamW<float>& optimizer, std::uint64_t step) {
  const auto whole_step = tape.span("step");
  const bool whole = training.accumulation == 1;
  StepOutcome outcome;
  StepOptions update;
  if (training.clip > 0) update.max_norm = training.clip;
  std::size_t counted = 0, row = 0;
  optimizer.set_learning_rate(training.learning_rate(step));
  optimizer.zero_grad();
  for (std::size_t part = 0; part < training.accumulation; ++part) {
    tape.clear();
    tape.set_step(step, row);
    const MicroBatch micro = forward_of(training, tape, step, part, whole ? Reduction::mean : Reduction::sum);
    update.norm = backward_of(micro.loss, optimizer.parameters());
    outcome.loss += micro.loss.item();
    outcome.tokens += micro.tokens;
    counted += micro.counted;
    row += micro.rows;
  }
  if (!whole) {
    divide_grad(optimizer.parameters(), counted);
    update.norm.reset();
    outcome.loss /= static_cast<double>(std::max<std::size_t>(1, counted));
  }
  const auto here = tape.span("optimizer");
  outcome.norm = optimizer.step(update);
  return outcome;
}

Evaluation evaluation_of(const Training& training, Tape<float>& tape) {
  const auto here = tape.span("evaluation");
  tape.clear();
  tape.set_training(false);
  const auto nothing_recorded = tape.no_grad();
  Evaluation evaluation = training.evaluate(tape);
  tape.set_training(true);
  return evaluation;
}

/// Time and tokens of training steps.
struct Pace {
  double seconds = 0, tokens = 0;
  std::uint64_t steps = 0;
  void add(double step_seconds, std::size_t step_tokens) {
    seconds += step_seconds, tokens += static_cast<double>(step_tokens), ++steps;
  }
  double seconds_a_step() const { return steps > 0 ? seconds / static_cast<double>(steps) : 0; }
  double tokens_per_s() const { return seconds > 0 ? tokens / seconds : 0; }
};

/// "step 250/2000 | loss 1.912 | val 1.980 | norm 0.81 | lr 9.1e-04 | 31.2 ms | 24,600 tok/s"
std::string log_line(const std::string& place, const StepOutcome& step, const std::string& evaluation, double rate,
                     const Pace& pace) {
  return fmt::format("{} | loss {:#.4g}{}{} | norm {:.3g} | lr {:.1e} | {:.1f} ms | {} tok/s", place, step.loss,
                     evaluation.empty() ? "" : " | ", evaluation, step.norm, rate, 1000 * pace.seconds_a_step(),
                     grouped(pace.tokens_per_s()));
}

bool finished(const RunState& run, const Training& training) {
  return run.step >= training.steps || run.at_target >= 2;
}

}  // namespace

TrainingResult train(const Training& training, const RunOptions& options, const std::string& title) {
  require(training.accumulation > 0 && training.evaluate_every > 0,
          "[train] accumulation and evaluate_every must be at least 1, got {} and {}", training.accumulation,
          training.evaluate_every);
  require_writable_profile(options.profile);  // before anything is overwritten
  set_threads(training.threads);
  AdamW<float> optimizer(training.model, training.optimizer);
  Tape<float> tape(training.seed);
  RunState run;
  RunFolder folder =
      options.resume.empty() ? RunFolder(options, training) : RunFolder(options, training, optimizer, run);
  if (finished(run, training))
    fmt::print("{} has finished, with step {} of {}: nothing is left to train\n", options.resume, run.step,
               training.steps);
  else if (run.step > 0)
    fmt::print("goes on from step {} of {}\n", run.step, training.steps);

  const RunProfile profile(tape, options.profile, folder.path());
  const StopSignal signal(folder.kept());
  const auto stops = [&] { return options.stop_after > 0 && run.step >= options.stop_after; };
  Progress progress;
  const Stopwatch clock;
  Pace pace, pace_since;  // of this process, and since the last evaluation
  std::string evaluation_text;
  bool stop = stops();
  while (!finished(run, training) && !stop) {
    const Stopwatch step_clock;
    const StepOutcome step = training_step(training, tape, optimizer, run.step);
    const double step_seconds = step_clock.seconds();
    pace.add(step_seconds, step.tokens);
    pace_since.add(step_seconds, step.tokens);
    ++run.step;

    const bool evaluate = run.step % training.evaluate_every == 0 || run.step == training.steps;
    const auto place = [&](const std::string& more) {
      return fmt::format("{}step {}/{}{}", title, run.step, training.steps, more);
    };
    if (evaluate) {
      const Evaluation evaluation = evaluation_of(training, tape);
      run.at_target = evaluation.at_target ? run.at_target + 1 : 0;
      if (std::isfinite(evaluation.to_beat) && (!run.best || evaluation.to_beat < *run.best))
        run.best = evaluation.to_beat, run.best_step = run.step;
      nlohmann::ordered_json metrics = {{"step", run.step}, {"loss", step.loss}};
      metrics.update(evaluation.metrics);
      metrics.update({{"learning_rate", optimizer.learning_rate()},
                      {"grad_norm", step.norm},
                      {"tokens_per_s", pace_since.tokens_per_s()},
                      {"seconds", folder.seconds_before() + clock.seconds()}});
      folder.add_metrics(metrics);
      evaluation_text = evaluation.text;
      progress.print(log_line(place(""), step, evaluation_text, optimizer.learning_rate(), pace_since));
      if (!evaluation.sample.empty()) progress.print(evaluation.sample);
      pace_since = {};
    } else if (progress.due()) {
      const double left =
          clock.seconds() / static_cast<double>(pace.steps) * static_cast<double>(training.steps - run.step);
      progress.show(log_line(place(fmt::format(" | {} left", duration_text(left))), step, evaluation_text,
                             optimizer.learning_rate(), pace_since));
    }
    stop = stops() || signal.received() != 0;
    if (evaluate || stop) {
      const auto here = tape.span("checkpoint");
      folder.save(run, optimizer);
    }
  }
  progress.erase();
  profile.finish();

  TrainingResult result;
  result.steps = run.step;
  result.seconds = folder.seconds_before() + clock.seconds();
  result.seconds_a_step = pace.seconds_a_step();
  result.folder = folder.path();
  result.stopped = !finished(run, training) || signal.received() != 0;
  if (result.stopped) {
    result.exit_code = signal.received() != 0 ? 128 + signal.received() : 0;
    const std::string hint = folder.kept() ? fmt::format("; --resume {} goes on", folder.path().string()) : "";
    fmt::print("stopped after step {} of {}{}\n", run.step, training.steps, hint);
  }
  return result;
}

}  // namespace examples
