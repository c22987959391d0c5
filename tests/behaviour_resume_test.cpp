// A resume is bit-identical to never having stopped (the rest of case O30), and every part of what it restores is
// needed for that.

#include "behaviour.hpp"
#include "files.hpp"

namespace xtape::behaviour_resume_test {
namespace {

/// A small language model in training, with all that a run may carry: dropout, random batches, clipping, a schedule,
/// moments, averages of the weights and the best loss so far.
template <class T, class Optimizer, class Options>
struct TrainingRun {
  static constexpr std::uint64_t end = 6;
  Rng init{1}, sampling{2};
  TransformerLm<T> model{{.vocabulary = 5, .length = 4, .width = 8, .heads = 2, .layers = 1, .block = {.dropout = 0.2}},
                         init};
  ParameterList<T> list = parameters<T>(model);
  Optimizer optimizer;
  ExponentialMovingAverage<T> average{list, 0.8};
  WarmupCosineSchedule rate{.rate = 0.05, .warmup = 2, .total = end, .floor = 0.01};
  Tape<T> tape{3};
  std::uint64_t step = 0;
  T best = std::numeric_limits<T>::infinity();

  explicit TrainingRun(Options options) : optimizer(list, options) {}

  void train(std::uint64_t until) {
    for (; step < until; ++step) {
      xt::xarray<int> tokens = zeros_of<int>({3, 4});
      for (auto& token : tokens) token = static_cast<int>(sampling.below(5));
      tape.clear();
      tape.set_step(step);
      optimizer.set_learning_rate(rate(step));
      optimizer.zero_grad();
      const Var<T> loss = cross_entropy(model(tape, tokens), tokens);
      tape.backward(loss);
      require_finite(loss, list);
      clip_grad_norm(list, 0.5);
      optimizer.step();
      average.update();
      best = std::min(best, loss.item());
    }
  }

  void save(const TemporaryFolder& folder) {
    save_safetensors(folder / "model.safetensors", list,
                     {{"step", fmt::format("{}", step)},
                      {"total", fmt::format("{}", rate.total)},
                      {"sampling", fmt::format("{}", sampling.position())},
                      {"best", fmt::format("{}", best)}});
    save_safetensors(folder / "optimizer.safetensors", optimizer.state());
    save_safetensors(folder / "average.safetensors", average.state());
  }
  /// Restores everything but the part that is named.
  void load(const TemporaryFolder& folder, const std::string& lost = "") {
    const Metadata metadata = SafetensorsFile(folder / "model.safetensors").metadata();
    if (lost != "weights") load_safetensors(folder / "model.safetensors", list);
    if (lost != "step") step = std::stoull(metadata.at("step"));
    rate.total = lost == "total" ? 2 * end : std::stoull(metadata.at("total"));
    if (lost != "sampling") sampling = Rng(sampling.seed(), std::stoull(metadata.at("sampling")));
    if (lost != "best") best = static_cast<T>(std::stod(metadata.at("best")));
    if (lost != "state") load_safetensors(folder / "optimizer.safetensors", optimizer.state());
    if (lost != "average") load_safetensors(folder / "average.safetensors", average.state());
    if (lost == "counts")
      for (auto& [name, parameter] : optimizer.state())
        if (name.starts_with("step.")) fill(parameter, T(0));
  }

  /// All numbers that the run has come to.
  std::vector<T> outcome() {
    std::vector<T> all{best};
    for (const auto* each : {&list, &optimizer.state(), &average.state()})
      for (const auto& [name, parameter] : *each)
        all.insert(all.end(), parameter.data(), parameter.data() + parameter.size());
    return all;
  }
};

template <class T, class Optimizer, class Options>
void expect_the_same_bits(const Options& options) {
  using Run = TrainingRun<T, Optimizer, Options>;
  Run whole(options);
  whole.train(Run::end);
  const TemporaryFolder folder;
  for (std::uint64_t stop = 0; stop <= Run::end; ++stop) {
    Run before(options), after(options);
    before.train(stop);
    before.save(folder);
    after.load(folder);
    after.train(Run::end);
    EXPECT_EQ(after.step, whole.step);
    EXPECT_TRUE(after.outcome() == whole.outcome()) << "stopped after step " << stop;
  }
}

TEST(Behaviour, O30_ARunResumedAtAnyStepHasTheSameBits) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const std::vector<ParameterGroup> groups = {{.name = "blocks.*", .learning_rate_factor = .5, .weight_decay = .2}};
    expect_the_same_bits<T, AdamW<T>>(AdamWOptions{.groups = groups});
    expect_the_same_bits<T, Adam<T>>(AdamOptions{.weight_decay = .1});
    expect_the_same_bits<T, Sgd<T>>(SgdOptions{.momentum = .9, .nesterov = true, .weight_decay = .1});
  });
}

TEST(Behaviour, O30_WhateverAResumeLosesIsSeen) {
  using SmallRun = TrainingRun<float, AdamW<float>, AdamWOptions>;
  SmallRun whole({}), before({});
  whole.train(SmallRun::end);
  before.train(5);  // the best loss is behind it
  const TemporaryFolder folder;
  before.save(folder);
  for (const std::string lost : {"", "weights", "step", "total", "sampling", "best", "state", "counts", "average"}) {
    SmallRun after({});
    after.load(folder, lost);
    after.train(SmallRun::end);
    EXPECT_EQ(after.outcome() == whole.outcome(), lost.empty()) << lost;
  }
}

}  // namespace
}  // namespace xtape::behaviour_resume_test
