// Trains the encoder-decoder of "The Annotated Transformer" (Harvard NLP) on its first example: to copy ten numbers.

#include <fmt/core.h>

#include <xtensor/xview.hpp>

#include <xtape/xtape.hpp>
#include "common/flags.hpp"
#include "common/progress.hpp"
#include "common/run_profile.hpp"

namespace {

using namespace xtape;
using namespace examples;
using Tokens = xt::xtensor<std::int64_t, 2>;  // (batch, time)

constexpr std::size_t vocabulary = 11, length = 10, width = 512, batch = 80, batches = 20, evaluation_batches = 5,
                      epochs = 20;
constexpr std::int64_t padding = 0, start = 1;

/// Rows of random numbers from 1 to 10, the first of which is always 1.
Tokens random_rows(Rng& rng) {
  Tokens rows = Tokens::from_shape({batch, length});
  for (std::int64_t& token : rows) token = 1 + static_cast<std::int64_t>(rng.below(vocabulary - 1));
  xt::view(rows, xt::all(), 0) = start;
  return rows;
}

/// One pass over a batch. The target is the source: its first nine numbers go in, its last nine shall come out.
Var<float> loss_of(const EncoderDecoder<float>& model, Tape<float>& tape, const Tokens& rows, double label_smoothing) {
  const auto tokens_in = xt::view(rows, xt::all(), xt::range(0, length - 1));
  const auto tokens_out = xt::view(rows, xt::all(), xt::range(1, length));
  const Mask source_tokens = tape.mask(xt::not_equal(rows, padding));
  const Mask target_tokens = tape.mask(xt::not_equal(tokens_in, padding));
  const Var<float> logits = model(tape, rows, tokens_in, source_tokens, target_tokens);
  return cross_entropy(logits, tokens_out, {.ignore_index = padding, .label_smoothing = label_smoothing});
}

/// " 0 1 2"
std::string text_of(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += " " + std::to_string(number);
  return text;
}

/// The most likely token after those so far, again and again.
std::vector<std::int64_t> decode(const EncoderDecoder<float>& model, Tape<float>& tape, const Tokens& source) {
  tape.clear();
  const auto nothing_recorded = tape.no_grad();
  const Var<float> memory = model.encode(tape, source);
  std::vector<std::int64_t> answer = {source(0, 0)};
  while (answer.size() < length) {
    const Var<float> logits = model.decode(tape, xt::adapt(answer, {std::size_t{1}, answer.size()}), memory);
    const float* last = logits.data() + (answer.size() - 1) * vocabulary;
    answer.push_back(std::max_element(last, last + vocabulary) - last);
  }
  return answer;
}

int run(std::uint64_t seed, double label_smoothing, const std::optional<std::string>& profile_file) {
  Rng rng(seed);
  EncoderDecoder<float> model({.source_vocabulary = vocabulary,
                               .target_vocabulary = vocabulary,
                               .length = length,
                               .width = width,
                               .heads = 8,
                               .layers = 2,
                               .block = {.hidden = 2048, .activation = Activation::relu, .dropout = 0.1}},
                              rng);
  auto list = parameters<float>(model);
  fmt::print("Copies {} numbers from 1 to {}; the model has {} parameters.\n", length, vocabulary - 1,
             grouped(static_cast<double>(count(list))));

  Adam<float> optimizer(list, {.betas = {0.9, 0.98}, .eps = 1e-9});
  const InverseSquareRootSchedule rate{.factor = 0.5, .width = width, .warmup = 400};
  Tape<float> tape(seed);
  const RunProfile profile(tape, profile_file);
  Progress progress;
  const Stopwatch clock;
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    double training = 0, evaluation = 0;
    for (std::size_t i = 0; i < batches; ++i) {
      const auto step = tape.span("step");
      tape.clear();
      optimizer.zero_grad();
      const Var<float> loss = loss_of(model, tape, random_rows(rng), label_smoothing);
      tape.backward(loss);
      optimizer.set_learning_rate(rate(optimizer.steps()));
      optimizer.step();
      training += loss.item() / batches;
      if (progress.due()) progress.show(fmt::format("epoch {:2}, batch {:2} of {}", epoch + 1, i + 1, batches));
    }
    tape.set_training(false);
    for (std::size_t i = 0; i < evaluation_batches; ++i) {
      tape.clear();
      const auto nothing_recorded = tape.no_grad();
      evaluation += loss_of(model, tape, random_rows(rng), 0).item() / evaluation_batches;
    }
    tape.set_training(true);
    progress.show(fmt::format("epoch {:2} of {}  loss {:.4f}, without dropout {:.5f}  rate {:.2e}  {}", epoch + 1,
                              epochs, training, evaluation, optimizer.learning_rate(), duration_text(clock.seconds())));
    progress.finish();
  }

  profile.finish();

  tape.set_training(false);
  const Tokens source = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}};  // 0 has never been seen
  const std::vector<std::int64_t> asked(source.begin(), source.end()), answered = decode(model, tape, source);
  fmt::print("asked    {}\nanswered {}\n", text_of(asked), text_of(answered));
  fmt::print("verdict: {}\n", answered == asked ? "copied exactly" : "NOT copied exactly");
  return answered == asked ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 0;
  double label_smoothing = 0;
  int threads = xtape::threads();
  Flags flags(
      "Trains the encoder-decoder of The Annotated Transformer to copy. Exit code: 0 if it then copies the "
      "numbers 0 to 9 exactly, 2 if not.",
      "annotated_copy");
  flags.add("--seed", seed, "of weights, data and dropout", {.allowed = Range{0, 1'000'000'000}});
  flags.add("--label_smoothing", label_smoothing, "the tutorial's first example has none",
            {.allowed = Range{0.0, 0.9}});
  flags.add("--threads", threads, "worker threads; does not change the result", {.allowed = Range{1, 1024}});
  std::optional<std::string> profile;
  add_profile_flag(flags, profile);
  try {
    if (const auto exit_code = flags.parse(argc, argv)) return *exit_code;
    set_threads(threads);
    return run(seed, label_smoothing, profile);
  } catch (const std::exception& error) {
    fmt::print(stderr, "annotated_copy: {}\n", error.what());
    return 1;
  }
}
