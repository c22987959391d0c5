#include "common/training.hpp"

#include <xtape/framework/ops/ops.hpp>
#include <xtape/framework/train/gradients.hpp>
#include <xtape/framework/train/optimizer.hpp>
#include <xtape/framework/train/require_finite.hpp>
#include <xtape/framework/train/schedule.hpp>
#include "common/progress.hpp"

namespace examples {

using namespace xtape;

namespace {
constexpr std::uint64_t warmup = 100, evaluate_every = 100;
}

TransformerLm<float> make_model(const Settings& s, const Task& task) {
  Rng rng(s.seed);
  return TransformerLm<float>({.vocabulary = task.vocabulary(),
                               .length = task.longest_input(),
                               .width = s.width,
                               .heads = s.heads,
                               .layers = s.layers,
                               .block = {.dropout = s.dropout, .attention_only = s.attention_only}},
                              rng);
}

TrainingResult train(TransformerLm<float>& model, const Task& task, const Settings& s, const std::string& title,
                     const std::function<void(const nlohmann::ordered_json&)>& on_evaluation) {
  set_threads(s.threads);
  AdamW<float> optimizer(parameters<float>(model), {.betas = {0.9, 0.98}, .weight_decay = 0.01});
  const WarmupCosineSchedule rate{s.learning_rate, std::min(warmup, s.steps), s.steps, s.learning_rate / 10};
  Tape<float> tape(s.seed);
  Progress progress;
  const Stopwatch clock;
  Score score;
  double tokens = 0, training_seconds = 0;
  int reached = 0;  // evaluations in a row at the target
  for (std::uint64_t step = 0; step < s.steps && reached < 2; ++step) {
    const Stopwatch step_clock;
    const Batch batch = task.training_batch(s.batch, s.seed, step);
    optimizer.set_learning_rate(rate(step));
    optimizer.zero_grad();
    tape.clear();
    tape.set_step(step);
    const Mask real = tape.lengths(batch.lengths, batch.tokens.shape(1));
    const Var<float> loss = cross_entropy(model(tape, batch.tokens, {.allow_keys = real}), batch.targets);
    tape.backward(loss);
    require_finite(loss, optimizer.parameters());
    const double norm = clip_grad_norm(optimizer.parameters(), 1.0);
    optimizer.step();

    const double current_loss = loss.item();
    training_seconds += step_clock.seconds();
    tokens += xt::sum(batch.lengths)();
    const std::uint64_t done = step + 1;
    const bool evaluate = done % evaluate_every == 0 || done == s.steps;
    if (evaluate) {
      score = judge(model, tape, task, Part::evaluation, evaluated, s.seed);
      reached = score.exact_match >= s.target ? reached + 1 : 0;
      if (on_evaluation)
        on_evaluation({{"step", done},
                       {"loss", current_loss},
                       {"exact_match", score.exact_match},
                       {"token_accuracy", score.token_accuracy},
                       {"learning_rate", optimizer.learning_rate()},
                       {"grad_norm", norm},
                       {"tokens_per_s", tokens / training_seconds},
                       {"seconds", clock.seconds()}});
    }
    if (evaluate || progress.due())
      progress.show(fmt::format(
          "{}{}/{}  loss {:.4f}  accuracy {:.1f}%  exact {:.1f}%  {} tokens/s  {} left", title, done, s.steps,
          current_loss, 100 * score.token_accuracy, 100 * score.exact_match, grouped(tokens / training_seconds),
          duration_text(clock.seconds() / static_cast<double>(done) * static_cast<double>(s.steps - done))));
  }
  progress.finish();
  return {optimizer.steps(), clock.seconds(), training_seconds / static_cast<double>(optimizer.steps())};
}

}  // namespace examples
