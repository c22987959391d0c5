// Shows that two layers of attention learn to continue a repetition, and that one layer cannot.
//
// Attention-only transformers (Elhage et al. 2021, "A mathematical framework for transformer circuits") on random
// letters that repeat from a random place: after "kqwdz|q" a model must say w, d, z.

#include <fmt/core.h>

#include "common/run_profile.hpp"
#include "common/training.hpp"

namespace {

using namespace examples;

struct Row {
  std::size_t layers, parameters;
  std::uint64_t steps;
  Score score;
};

/// A trace for each model: profile-1.json, profile-2.json.
std::optional<std::string> profile_of(const std::optional<std::string>& file, std::size_t layers) {
  if (!file) return {};
  const std::filesystem::path path = file->empty() ? "profile.json" : *file;
  return path.parent_path() / fmt::format("{}-{}{}", path.stem().string(), layers, path.extension().string());
}

Row train_and_judge(Settings settings, std::size_t layers, const std::optional<std::string>& profile) {
  settings.layers = layers;
  const auto task = make_task(settings.task);
  auto model = make_model(settings, *task);
  const TrainingResult result = train(training_of(model, *task, settings), {.profile = profile_of(profile, layers)},
                                      fmt::format("{} layer{}  ", layers, layers > 1 ? "s" : ""));
  xtape::Tape<float> tape;
  return {layers, count(xtape::parameters<float>(model)), result.steps,
          judge(model, tape, *task, Part::verdict, judged, settings.seed)};
}

int run(const Settings& settings, const std::optional<std::string>& profile) {
  fmt::print("Random letters, then the same again from a random place: after kqwdz|q a model must say wdz.\n\n");
  const Row one = train_and_judge(settings, 1, profile), two = train_and_judge(settings, 2, profile);
  fmt::print("\nlayers  parameters  steps  letters right  repetitions right\n");
  for (const auto& [layers, parameters, steps, score] : {one, two})
    fmt::print("{:6}  {:10}  {:5}  {:12.1f}%  {:16.1f}%\n", layers, parameters, steps, 100 * score.token_accuracy,
               100 * score.exact_match);
  fmt::print(R"(
A model must say what stood behind its last letter before. One layer can look for that letter, but what it finds there
is the letter itself: which one came next is not written there. With two, the first layer writes into every place the
letter before it, and the second looks for the place where the last letter is written: an induction head (Olsson et al.
2022, "In-context learning and induction heads").
)");
  const bool two_can = two.score.exact_match >= 0.99 && two.score.token_accuracy >= 0.99;
  const bool one_can = one.score.token_accuracy >= 0.5;
  return two_can && !one_can ? 0 : 2;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings = default_settings("induction");  // attention only
  Flags flags("Shows that two layers of attention learn to continue a repetition, and that one layer cannot.",
              "induction_heads");
  flags.add("--seed", settings.seed, "of weights and data", {.allowed = Range{0, 1'000'000'000}});
  flags.add("--threads", settings.threads, "worker threads; does not change the result", {.allowed = Range{1, 1024}});
  std::optional<std::string> profile;
  add_profile_flag(flags, profile);
  try {
    if (const auto exit_code = flags.parse(argc, argv)) return *exit_code;
    return run(settings, profile);
  } catch (const std::exception& error) {
    fmt::print(stderr, "induction_heads: {}\n", error.what());
    return 1;
  }
}
