// Trains a small transformer to copy sequences of letters that it has never met.
//
// Decoder-only: after "x1 ... xn SEP" it must say x1 ... xn. The loss counts the answer alone.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include <xtape/xtape.hpp>
#include "common/copy_score.hpp"
#include "common/copy_sequences.hpp"
#include "common/progress.hpp"

namespace {

using namespace xtape;
using namespace examples;

struct Settings {
  std::uint64_t seed = 0, steps = 2000;
  std::size_t batch = 32, width = 64, heads = 4, layers = 2, letters = 26, shortest = 4, longest = 12;
  std::string length = "4..12", out;
  double learning_rate = 2e-3, dropout = 0, target = 0.995;
  int threads = xtape::threads();
};

constexpr std::uint64_t warmup = 100, evaluate_every = 100;

/// "4..12", or "8" for one length.
void read_length(Settings& s) {
  const std::size_t dots = s.length.find("..");
  const auto number = [](std::string_view text) {  // 0 if anything but digits stands there
    std::size_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    return error == std::errc() && end == text.data() + text.size() ? n : 0;
  };
  s.shortest = number(s.length.substr(0, dots));
  s.longest = dots == std::string::npos ? s.shortest : number(s.length.substr(dots + 2));
  require(1 <= s.shortest && s.shortest <= s.longest && s.longest <= 128,
          "--length must be two lengths such as 4..12, from 1 to 128 and the shorter first, got {}", s.length);
}

void add_flags(CLI::App& app, Settings& s) {
  app.add_option("--seed", s.seed, "of weights, data and dropout")->check(CLI::Range(0, 1'000'000'000));
  app.add_option("--steps", s.steps, "training steps at most")->check(CLI::Range(1, 10'000'000));
  app.add_option("--batch", s.batch, "sequences a step")->check(CLI::Range(1, 65'536));
  app.add_option("--width", s.width, "of the model, a multiple of --heads")->check(CLI::Range(1, 8192));
  app.add_option("--heads", s.heads, "attention heads")->check(CLI::Range(1, 512));
  app.add_option("--layers", s.layers, "transformer blocks")->check(CLI::Range(1, 128));
  app.add_option("--length", s.length, "letters to copy, shortest..longest");
  app.add_option("--letters", s.letters, "size of the alphabet")->check(CLI::Range(2, 26));
  app.add_option("--learning_rate", s.learning_rate, "at its peak")->check(CLI::Range(0.0, 10.0));
  app.add_option("--dropout", s.dropout, "probability")->check(CLI::Range(0.0, 0.99));
  app.add_option("--threads", s.threads, "worker threads; does not change the result")->check(CLI::Range(1, 1024));
  app.add_option("--target", s.target, "stop after two evaluations with this exact match")->check(CLI::Range(0.0, 1.0));
  app.add_option("--out", s.out, "folder for config.json, metrics.jsonl and model.safetensors");
  for (CLI::Option* option : app.get_options()) option->capture_default_str();
}

/// Files of a run; writes nothing without --out.
class Record {
 public:
  explicit Record(const Settings& s) : folder_(s.out) {
    if (folder_.empty()) return;
    std::filesystem::create_directories(folder_);
    const nlohmann::ordered_json config = {
        {"seed", s.seed},       {"steps", s.steps},     {"batch", s.batch},
        {"width", s.width},     {"heads", s.heads},     {"layers", s.layers},
        {"length", s.length},   {"letters", s.letters}, {"learning_rate", s.learning_rate},
        {"dropout", s.dropout}, {"threads", s.threads}, {"target", s.target}};
    open("config.json") << config.dump(2) << "\n";
    metrics_ = open("metrics.jsonl");
  }
  void evaluation(const nlohmann::ordered_json& metrics) {
    if (metrics_.is_open()) metrics_ << metrics.dump() << std::endl;
  }
  void model(const ParameterList<float>& list) const {
    if (!folder_.empty()) save_safetensors(folder_ / "model.safetensors", list);
  }

 private:
  std::ofstream open(const char* name) const {
    std::ofstream file(folder_ / name);
    require(file.good(), "{} cannot be written", (folder_ / name).string());
    return file;
  }
  std::filesystem::path folder_;
  std::ofstream metrics_;
};

int run(const Settings& s) {
  set_threads(s.threads);
  const CopySequences sequences(s.letters, s.shortest, s.longest, s.seed);
  Rng rng(s.seed);
  TransformerLm<float> model({.vocabulary = sequences.vocabulary(),
                              .length = sequences.longest_input(),
                              .width = s.width,
                              .heads = s.heads,
                              .layers = s.layers,
                              .block = {.dropout = s.dropout}},
                             rng);
  Record record(s);
  fmt::print("{}\n", describe(model));

  AdamW<float> optimizer(parameters<float>(model), {.betas = {0.9, 0.98}, .weight_decay = 0.01});
  const WarmupCosineSchedule rate{s.learning_rate, std::min(warmup, s.steps), s.steps, s.learning_rate / 10};
  Tape<float> tape(s.seed);
  Progress progress;
  const Stopwatch clock;
  CopyScore score;
  double tokens = 0, training_seconds = 0;
  int reached = 0;  // evaluations in a row at the target
  for (std::uint64_t step = 0; step < s.steps && reached < 2; ++step) {
    const Stopwatch step_clock;
    const CopyBatch batch = sequences.training_batch(s.batch, step);
    optimizer.set_learning_rate(rate(step));
    optimizer.zero_grad();
    tape.clear();
    tape.set_step(step);
    const Mask real = tape.lengths(batch.lengths, batch.tokens.shape(1));
    const Var<float> loss = cross_entropy(model(tape, batch.tokens, {.allow_keys = real}), batch.targets);
    tape.backward(loss);
    const double norm = clip_grad_norm(optimizer.parameters(), 1.0);
    optimizer.step();

    const double current_loss = loss.item();
    training_seconds += step_clock.seconds();
    tokens += xt::sum(batch.lengths)();
    const std::uint64_t done = step + 1;
    const bool evaluate = done % evaluate_every == 0 || done == s.steps;
    if (evaluate) {
      score = judge(model, tape, sequences, Part::evaluation, evaluated);
      reached = score.exact_match >= s.target ? reached + 1 : 0;
      record.evaluation({{"step", done},
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
          "{}/{}  loss {:.4f}  accuracy {:.1f}%  exact {:.1f}%  {} tokens/s  {} left", done, s.steps, current_loss,
          100 * score.token_accuracy, 100 * score.exact_match, grouped(tokens / training_seconds),
          duration_text(clock.seconds() / static_cast<double>(done) * static_cast<double>(s.steps - done))));
  }
  progress.finish();
  record.model(optimizer.parameters());
  const double seconds = clock.seconds();

  score = judge(model, tape, sequences, Part::verdict, judged);
  fmt::print("\ntrained {} steps in {:.1f} s ({:.2f} ms a step, evaluation apart)\n", optimizer.steps(), seconds,
             1000 * training_seconds / static_cast<double>(optimizer.steps()));
  fmt::print("copies {} of {} sequences that it never met ({:.1f}%; letters: {:.2f}%)\n\n", score.right, judged,
             100 * score.exact_match, 100 * score.token_accuracy);
  print_samples(sequences, score);
  return score.exact_match >= 0.99 ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  CLI::App app(
      "Trains a small transformer to copy sequences of letters, then lets it copy sequences that it has never met.",
      "copy_task");
  add_flags(app, settings);
  CLI11_PARSE(app, argc, argv);
  try {
    read_length(settings);
    return run(settings);
  } catch (const std::exception& error) {
    fmt::print(stderr, "copy_task: {}\n", error.what());
    return 1;
  }
}
