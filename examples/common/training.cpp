#include "common/training.hpp"

#include <xtape/framework/ops/ops.hpp>
#include <xtape/framework/train/gradients.hpp>
#include <xtape/framework/train/schedule.hpp>

namespace examples {

using namespace xtape;

namespace {
constexpr std::uint64_t warmup = 100;
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

Training training_of(TransformerLm<float>& model, const Task& task, const Settings& s) {
  const WarmupCosineSchedule rate{s.learning_rate, std::min(warmup, s.steps), s.steps, s.learning_rate / 10};
  return {.model = parameters<float>(model),
          .config = to_json(s),
          .optimizer = {.betas = {0.9, 0.98}, .weight_decay = 0.01},
          .schedule = {{"name", "warmup_cosine"},
                       {"rate", rate.rate},
                       {"warmup", rate.warmup},
                       {"total", rate.total},
                       {"floor", rate.floor}},
          .learning_rate = rate,
          .seed = s.seed,
          .steps = s.steps,
          .evaluate_every = s.evaluate_every,
          .threads = s.threads,
          .forward = [&model, &task, rows = s.batch, seed = s.seed](Tape<float>& tape, std::uint64_t step, std::size_t,
                                                                    Reduction reduction) -> MicroBatch {
            const Batch batch = [&] {
              const auto here = tape.span("batch");
              return task.training_batch(rows, seed, step);
            }();
            const Mask real = tape.lengths(batch.lengths, batch.tokens.shape(1));
            const Var<float> logits = model(tape, batch.tokens, {.allow_keys = real});
            return {.loss = cross_entropy(logits, batch.targets, {.reduction = reduction}),
                    .counted = count_targets(batch.targets),
                    .rows = rows,
                    .tokens = static_cast<std::size_t>(xt::sum(batch.lengths)())};
          },
          .evaluate = [&model, &task, s](Tape<float>& tape) -> Evaluation {
            const Score score = judge(model, tape, task, Part::evaluation, evaluated, s.seed);
            return {.to_beat = 1 - score.exact_match,
                    .at_target = score.exact_match >= s.target,
                    .text = fmt::format("accuracy {:.1f}% | exact {:.1f}%", 100 * score.token_accuracy,
                                        100 * score.exact_match),
                    .metrics = {{"exact_match", score.exact_match}, {"token_accuracy", score.token_accuracy}}};
          }};
}

}  // namespace examples
