// The training loop that programs share, on a model of a few numbers.

#include "common/trainer.hpp"

#include <array>
#include <fstream>
#include <map>

#include "failing_writes.hpp"
#include "files.hpp"
#include "metrics.hpp"

namespace examples::trainer_test {
namespace {

namespace fs = std::filesystem;
using namespace xtape;

constexpr std::size_t rows = 12, width = 4, classes = 5;

/// A classifier of random rows with dropout. The targets of a step are spread unevenly, and its last third has none.
struct Classifier {
  Rng rng{1};
  Linear<float> linear{width, classes, rng};
  std::map<std::uint64_t, Evaluation> evaluations;  // by steps done; others say nothing
  std::uint64_t done = 0;

  Training training(std::size_t accumulation = 1) {
    const auto rate = [](std::uint64_t step) { return 0.1 / static_cast<double>(step + 1); };
    return {.model = parameters<float>(linear),
            .config = {{"width", width}, {"threads", 1}},
            .optimizer = {},
            .schedule = {{"name", "harmonic"}, {"total", 6}},
            .learning_rate = rate,
            .seed = 3,
            .steps = 6,
            .evaluate_every = 1,
            .accumulation = accumulation,
            .clip = 1,
            .threads = 1,
            .forward =
                [this, accumulation](Tape<float>& tape, std::uint64_t step, std::size_t part, Reduction reduction) {
                  EXPECT_TRUE(tape.training() && tape.recording());
                  done = step + 1;
                  return forward(tape, step, rows / accumulation, part, reduction);
                },
            .evaluate =
                [this](Tape<float>& tape) {
                  EXPECT_FALSE(tape.training() || tape.recording());
                  return evaluations[done];
                }};
  }
  MicroBatch forward(Tape<float>& tape, std::uint64_t step, std::size_t count, std::size_t part, Reduction reduction) {
    const auto all = random_array<float>({rows, width}, step);
    xt::xarray<float> x = zeros_of<float>({count, width});
    xt::xarray<int> targets = zeros_of<int>({count});
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t row = part * count + i;
      for (std::size_t j = 0; j < width; ++j) x(i, j) = all(row, j);
      const bool asked = row == 2 || (row > 3 && row < 7);
      targets(i) = asked ? static_cast<int>(row % classes) : -100;
    }
    const Var<float> loss = cross_entropy(linear(dropout(tape.input(x), 0.3)), targets, {.reduction = reduction});
    return {loss, count_targets(targets), count, count};
  }
};

std::vector<float> numbers(Classifier& model) {
  std::vector<float> all;
  for (const auto& [name, parameter] : parameters<float>(model.linear))
    all.insert(all.end(), parameter.data(), parameter.data() + parameter.size());
  return all;
}

// ---- accumulation (case O18)

TEST(Behaviour, O18_MicroBatchesOfTheTrainerEqualTheBigBatch) {
  const TemporaryFolder folder;
  Classifier big;
  train(big.training(), {.out = (folder / "1").string()});
  for (const std::size_t accumulation : {2, 3, 4, 12}) {  // with few targets, with many, and with none
    Classifier small;
    const fs::path run = folder / std::to_string(accumulation);
    train(small.training(accumulation), {.out = run.string()});
    const auto a = numbers(big), b = numbers(small);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << accumulation;
    const auto expected = timeless_metrics_of(folder / "1"), got = timeless_metrics_of(run);
    ASSERT_EQ(got.size(), 6U);
    for (std::size_t i = 0; i < 6; ++i)
      for (const char* key : {"loss", "grad_norm"})
        EXPECT_NEAR(got[i][key].get<double>(), expected[i][key].get<double>(), 1e-5) << key << " " << accumulation;
  }
}

TEST(Behaviour, O18_TheMeanIsOverAllTokensOfTheStep) {
  const TemporaryFolder folder;
  Parameter<float> w({}, Role::weight);
  Training training = Classifier().training(2);
  training.model = {{"w", w}};
  training.steps = 1;
  training.clip = 0;  // no clipping: the norm is told all the same
  training.forward = [&](Tape<float>& tape, std::uint64_t, std::size_t part, Reduction reduction) -> MicroBatch {
    EXPECT_EQ(reduction, Reduction::sum);
    return {tape.var(w) * 6.f, part == 0 ? 1U : 3U, 1, 1};  // one token of gradient 6; three of gradient 2
  };
  training.evaluate = [](Tape<float>&) { return Evaluation{}; };
  train(training, {.out = folder.path().string()});
  EXPECT_FLOAT_EQ(timeless_metrics_of(folder.path())[0]["grad_norm"].get<float>(), 3);
}

// ---- resume (cases O29 and O30)

Evaluation says(double to_beat, bool at_target = false) {
  return {.to_beat = to_beat, .at_target = at_target, .metrics = {{"to_beat", to_beat}}, .sample = ""};
}
const std::map<std::uint64_t, Evaluation> one_good_in_between = {{1, says(3)},       {2, says(1)},       {3, says(2)},
                                                                 {4, says(1, true)}, {5, says(2, true)}, {6, says(0)}};

TEST(Behaviour, O30_TheTrainerStoppedAtAnyStepHasTheSameBits) {
  const TemporaryFolder folder;
  Classifier whole;
  whole.evaluations = one_good_in_between;
  const std::string out = (folder / "whole").string();
  EXPECT_EQ(train(whole.training(3), {.out = out}).steps, 5U) << "twice at the target";
  for (std::uint64_t stop = 1; stop <= 4; ++stop) {
    const std::string run = (folder / std::to_string(stop)).string();
    Classifier before, after;
    before.evaluations = after.evaluations = one_good_in_between;
    const TrainingResult first = train(before.training(3), {.out = run, .stop_after = stop});
    EXPECT_TRUE(first.stopped);
    EXPECT_EQ(first.exit_code, 0);
    const TrainingResult second = train(after.training(3), {.resume = run});
    EXPECT_FALSE(second.stopped);
    EXPECT_EQ(second.steps, 5U) << "evaluations in a row are counted on";
    EXPECT_EQ(second.folder, run);
    EXPECT_EQ(numbers(after), numbers(whole)) << stop;
    EXPECT_EQ(timeless_metrics_of(run), timeless_metrics_of(out)) << stop;
    EXPECT_EQ(checkpoint_of(run, /*best=*/true), fs::path(run) / "checkpoint-2") << "later ones are not better";
  }
}

TEST(Behaviour, O29_TheScheduleWithItsTotalIsInTheCheckpoint) {
  const TemporaryFolder folder;
  const std::string run = folder.path().string();
  Classifier before, after;
  train(before.training(), {.out = run, .stop_after = 3});
  const auto state = nlohmann::json::parse(std::ifstream(folder / "checkpoint-3/state.json"));
  EXPECT_EQ(state["schedule"]["total"], 6);
  EXPECT_EQ(state["step"], 3);
  EXPECT_EQ(state["random"]["seed"], 3);
  EXPECT_EQ(state["data"]["step"], 3);
  const auto first = numbers(after);
  Training other = after.training();
  other.schedule["total"] = 12;
  expect_message<Error>([&] { train(other, {.resume = run}); },
                        {"checkpoint-3 was saved with another schedule", "\"total\":6", "\"total\":12"});
  other = after.training();
  other.config["width"] = 5;
  expect_message<Error>([&] { train(other, {.resume = run}); }, {"another configuration"});
  other = after.training();
  other.seed = 4;
  expect_message<Error>([&] { train(other, {.resume = run}); }, {"another seed"});
  EXPECT_EQ(numbers(after), first) << "nothing was loaded";
  other = after.training();
  EXPECT_EQ(resumed_config(run)["width"], width);
  EXPECT_EQ(resumed_config(run)["threads"], threads()) << "that of the machine, not of the run";
  other.config["threads"] = 4;  // does not matter
  EXPECT_EQ(train(other, {.resume = run}).steps, 6U);
}

TEST(Trainer, WhatCannotBeComparedIsNotTheBest) {
  const TemporaryFolder folder;
  const std::string run = folder.path().string();
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  Classifier model;
  model.evaluations = {{1, says(nan)}, {2, says(infinity)}, {3, says(5)}, {4, says(nan)}};
  train(model.training(), {.out = run, .stop_after = 2});
  expect_message<Error>([&] { checkpoint_of(run, /*best=*/true); }, {"best names no checkpoint"});
  train(model.training(), {.resume = run, .stop_after = 4});
  EXPECT_EQ(checkpoint_of(run, /*best=*/true), folder / "checkpoint-3");
}

TEST(Trainer, AResumeCutsTheMetricsThatComeAfterIt) {
  const TemporaryFolder folder;
  const std::string run = folder.path().string();
  Classifier model;
  train(model.training(), {.out = run, .keep = 10});
  const auto all = timeless_metrics_of(run);
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << "{\"step\": 7, \"lo";  // a process was killed in a line
  Classifier again;
  train(again.training(), {.resume = run + "/checkpoint-4", .keep = 10, .stop_after = 5});
  EXPECT_EQ(timeless_metrics_of(run), std::vector(all.begin(), all.begin() + 5));
  train(again.training(), {.resume = run, .keep = 10});
  EXPECT_EQ(timeless_metrics_of(run), all);
  EXPECT_EQ(folder.entries(), 10U) << "six checkpoints, latest, config.json, metrics.jsonl, and best";
}

TEST(Trainer, AStateThatIsNoneIsASentence) {
  const TemporaryFolder folder;
  Classifier model;
  Training training = model.training();
  AdamW<float> optimizer(training.model);
  for (const auto& [text, sentence] : std::map<std::string, const char*>{
           {"{", "is no state of a run"},
           {"[1]", "is no state of a run"},
           {"{\"version\": \"new\"}", "is no state of a run"},
           {"{\"version\": 1}", "is no state of a run"},
           {"{\"version\": 2, \"config\": {}}", "must be of version 1, got 2"},
           {"{\"version\": 1, \"config\": 3, \"schedule\": {}}", "another configuration"}}) {
    save_checkpoint(folder.path(), 1, training.model, optimizer.state(), text);
    expect_message<Error>([&] { train(training, {.resume = folder.path().string()}); }, {"checkpoint-1", sentence});
  }
}

// ---- what goes wrong

TEST(Trainer, WhatIsNotFiniteEndsTheRunAndTheLastCheckpointStands) {
  const TemporaryFolder folder;
  Classifier model;
  Training training = model.training();
  const auto forward = training.forward;
  training.forward = [&](Tape<float>& tape, std::uint64_t step, std::size_t part, Reduction reduction) {
    MicroBatch micro = forward(tape, step, part, reduction);
    if (step == 3) micro.loss = micro.loss * std::numeric_limits<float>::infinity();
    return micro;
  };
  expect_message<Error>([&] { train(training, {.out = folder.path().string()}); }, {"step 3"});
  EXPECT_EQ(checkpoint_of(folder.path()), folder / "checkpoint-3");
  Classifier again;
  EXPECT_EQ(train(again.training(), {.resume = folder.path().string()}).steps, 6U);
}

TEST(Behaviour, O32_ARunInAFolderThatMayNotBeWritten) {
  const TemporaryFolder folder;
  const std::string run = folder.path().string();
  Classifier before, after;
  train(before.training(), {.out = run, .stop_after = 2});
  fs::permissions(run, static_cast<fs::perms>(0555));
  {
    const WithoutPrivileges nobody;
    const auto refused = "cannot be written: Permission denied";
    expect_message<Error>([&] { train(after.training(), {.resume = run}); }, {refused});
    expect_message<Error>([&] { train(after.training(), {.out = run, .overwrite = true}); }, {refused});
    expect_message<Error>([&] { train(after.training(), {.out = run + "/new"}); },
                          {"cannot be made a folder: Permission denied"});
  }
  fs::permissions(run, fs::perms::owner_all);
  EXPECT_EQ(train(after.training(), {.resume = run}).steps, 6U);
}

TEST(Trainer, NoTwoProcessesTrainInOneFolder) {
  const TemporaryFolder folder;
  const std::string run = folder.path().string();
  Classifier model, other;
  train(model.training(), {.out = run, .stop_after = 2});
  Training training = model.training();
  training.evaluate = [&](Tape<float>&) -> Evaluation {
    expect_message<Error>([&] { train(other.training(), {.resume = run}); },
                          {run.c_str(), "another process trains in"});
    expect_message<Error>([&] { train(other.training(), {.out = run, .overwrite = true}); }, {"another process"});
    return {};
  };
  EXPECT_EQ(train(training, {.resume = run}).steps, 6U);
  EXPECT_EQ(train(other.training(), {.resume = run}).steps, 6U);
}

TEST(Trainer, SettingsThatCannotBeKeptLeaveTheRunThatIsThere) {
  const TemporaryFolder folder;
  const std::string run = folder.path().string();
  Classifier model, other;
  train(model.training(), {.out = run, .stop_after = 2});
  Training training = other.training();
  training.config["text"] = "\xff.txt";
  expect_message<Error>([&] { train(training, {.out = run, .overwrite = true}); }, {"not UTF-8"});
  EXPECT_EQ(train(model.training(), {.resume = run}).steps, 6U);
}

TEST(Trainer, ALineOfMetricsThatIsDamagedTakesNoOtherWithIt) {
  const TemporaryFolder folder;
  const std::string run = folder.path().string();
  Classifier model;
  train(model.training(), {.out = run, .stop_after = 3});
  const std::string lines = read_bytes(folder / "metrics.jsonl");
  write_bytes(folder / "metrics.jsonl", "\n{\"step\": 1, \"los\n" + lines);
  train(model.training(), {.resume = run});
  EXPECT_EQ(timeless_metrics_of(folder.path()).size(), 6U);
}

TEST(Trainer, WithoutAFolderNothingIsKept) {
  Classifier model;
  const TrainingResult result = train(model.training(), {.stop_after = 2});
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.steps, 2U);
  EXPECT_TRUE(result.folder.empty());
  Training none = model.training();
  none.accumulation = 0;
  expect_message<Error>([&] { train(none); }, {"accumulation and evaluate_every must be at least 1, got 0 and 1"});
}

}  // namespace
}  // namespace examples::trainer_test
