#include "char_lm/model.hpp"

#include <algorithm>
#include <cmath>

#include <xtape/framework/nn/initialise.hpp>
#include <xtape/framework/ops/ops.hpp>
#include <xtape/framework/train/schedule.hpp>
#include "char_lm/sampling.hpp"

namespace examples::char_lm {

using namespace xtape;

namespace {

using Tokens = std::span<const std::int32_t>;

constexpr std::size_t evaluated = 32'768;           // characters of the validation split, in each evaluation on the way
constexpr std::size_t at_a_time = 4096;             // characters, in an evaluation
constexpr std::uint64_t windows_from = 1ull << 40;  // random numbers before these are those of the weights

/// Windows of a text and what follows each of their characters, both (windows, time).
struct Windows {
  Integers inputs, targets;
};
Windows windows_at(Tape<float>& tape, Tokens text, std::span<const std::size_t> starts, std::size_t time) {
  std::vector<std::int64_t> inputs, targets;
  for (const std::size_t start : starts) {
    const Tokens window = text.subspan(start, time + 1);
    inputs.insert(inputs.end(), window.begin(), window.end() - 1);
    targets.insert(targets.end(), window.begin() + 1, window.end());
  }
  const Shape shape{starts.size(), time};
  return {tape.integers(inputs.data(), shape), tape.integers(targets.data(), shape)};
}

/// Where the windows of a micro-batch begin. Each window has random numbers of its own, by its number in the whole run:
/// a step sees the same windows however it is cut into micro-batches.
std::vector<std::size_t> random_starts(const Settings& s, std::size_t text, std::uint64_t step, std::size_t part) {
  std::vector<std::size_t> starts(s.batch_size);
  const std::uint64_t first = (step * s.gradient_accumulation_steps + part) * s.batch_size;
  for (std::size_t i = 0; i < starts.size(); ++i)
    starts[i] = Rng(s.seed, windows_from + ((first + i) << 4)).below(text - s.block_size);
  return starts;
}

/// The summed loss of windows.
double loss_at(const Model& model, Tape<float>& tape, Tokens text, std::span<const std::size_t> starts,
               std::size_t time) {
  double sum = 0;
  const std::size_t rows = std::max<std::size_t>(1, at_a_time / time);
  for (std::size_t i = 0; i < starts.size(); i += rows) {
    tape.clear();
    const auto [inputs, targets] = windows_at(tape, text, starts.subspan(i, std::min(rows, starts.size() - i)), time);
    sum += cross_entropy(model(tape, inputs), targets, {.reduction = Reduction::sum}).item();
  }
  return sum;
}

/// Embeddings as GPT-2's, normal with standard deviation 0.02. Matrices keep 1 / sqrt(inputs), which learns faster at
/// small widths than GPT-2's 0.02; those that feed a residual connection are scaled by 1 / sqrt(2 n_layer) as there.
void initialise(Model& model, std::size_t n_layer, Rng& rng) {
  for (auto& [name, parameter] : parameters<float>(model)) {
    if (parameter.role() == Role::embedding)
      init_normal(parameter, 0.02, rng);
    else if (name.ends_with("out_proj.weight") || name.ends_with("linear2.weight"))
      init_normal(parameter, 1 / std::sqrt(2.0 * static_cast<double>(n_layer * parameter.shape()[1])), rng);
  }
}

}  // namespace

Model make_model(const Settings& s, std::size_t vocabulary) {
  Rng rng(s.seed);
  Model model({.vocabulary = vocabulary,
               .length = s.block_size,
               .width = s.n_embd,
               .heads = s.n_head,
               .layers = s.n_layer,
               .block = {.dropout = s.dropout, .attention_dropout = s.dropout, .bias = s.bias},
               .tie_embeddings = true},
              rng);
  initialise(model, s.n_layer, rng);
  return model;
}

ValidationLoss loss_over(const Model& model, Tape<float>& tape, Tokens text, std::size_t block_size,
                         std::size_t at_most) {
  const std::size_t all = (text.size() - 1) / block_size;
  std::vector<std::size_t> starts(std::min(all, std::max<std::size_t>(1, at_most / block_size)));
  for (std::size_t i = 0; i < starts.size(); ++i) starts[i] = i * all / starts.size() * block_size;
  const std::size_t predicted = starts.size() * block_size;
  return {loss_at(model, tape, text, starts, block_size) / static_cast<double>(predicted), predicted};
}

ValidationLoss loss_over_all(const Model& model, Tokens text, std::size_t block_size) {
  Tape<float> tape;
  tape.set_training(false);
  const auto no_grad = tape.no_grad();
  const std::size_t predicted = text.size() - 1, rest = predicted % block_size;
  const ValidationLoss whole = loss_over(model, tape, text, block_size, predicted);
  double sum = whole.mean * static_cast<double>(whole.predicted);
  if (rest > 0) sum += loss_at(model, tape, text, std::array{predicted - rest}, rest);
  return {sum / static_cast<double>(predicted), predicted};
}

Training make_training(Model& model, const Settings& s, const Text& text, nlohmann::ordered_json config) {
  const WarmupCosineSchedule rate{s.learning_rate, s.warmup_iters, s.max_iters, s.min_lr};
  Training training;
  training.model = parameters<float>(model);
  training.config = std::move(config);
  training.optimizer = {.betas = {s.beta1, s.beta2},
                        .weight_decay = s.weight_decay,
                        .groups = {{.role = Role::embedding, .weight_decay = s.weight_decay}}};
  training.schedule = {{"rate", rate.rate}, {"warmup", rate.warmup}, {"total", rate.total}, {"floor", rate.floor}};
  training.learning_rate = rate;
  training.seed = s.seed;
  training.steps = s.max_iters;
  training.evaluate_every = s.eval_interval;
  training.accumulation = s.gradient_accumulation_steps;
  training.clip = s.grad_clip;
  training.threads = s.threads;
  training.forward = [&model, s, &text](Tape<float>& tape, std::uint64_t step, std::size_t part, Reduction reduction) {
    const auto batch = [&] {
      const auto here = tape.span("batch");
      const auto starts = random_starts(s, text.training().size(), step, part);
      return windows_at(tape, text.training(), starts, s.block_size);
    };
    const auto [inputs, targets] = batch();
    const Var<float> loss = cross_entropy(model(tape, inputs), targets, {.reduction = reduction});
    const std::size_t tokens = s.batch_size * s.block_size;
    return MicroBatch{loss, tokens, s.batch_size, tokens};
  };
  training.evaluate = [&model, s, &text](Tape<float>& tape) {
    const double loss = loss_over(model, tape, text.validation(), s.block_size, evaluated).mean;
    Evaluation evaluation;
    evaluation.to_beat = loss;
    evaluation.text = fmt::format("val {:.3f}", loss);
    evaluation.metrics = {{"val_loss", loss}};
    evaluation.sample = short_sample(model, text.vocabulary, s.block_size, s.seed);
    return evaluation;
  };
  return training;
}

}  // namespace examples::char_lm
