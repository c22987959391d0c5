// Normalisation far from zero, cross-entropy at its edges, accumulation over micro-batches (cases O15 to O18).

#include <limits>
#include <numbers>

#include <xtensor/xview.hpp>

#include "behaviour.hpp"

namespace xtape::behaviour_loss_test {
namespace {

TEST(Behaviour, O15_LayerNormFarFromZero) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    const xt::xarray<T> values = {40000, 40001, 40002, 40003};
    const xt::xarray<T> right = {T(-1.3416354200), T(-.4472118067), T(.4472118067), T(1.3416354200)};
    EXPECT_TRUE(near(array(layer_norm(tape.input(values))), right, tolerance::behaviour<T>));
  });
  // The formula E[x^2] - E[x]^2 in float would not pass: it loses the variance of 1.25 altogether.
  float squares = 0, total = 0;
  for (const float x : {40000.0F, 40001.0F, 40002.0F, 40003.0F}) squares += x * x, total += x;
  EXPECT_GT(std::abs(squares / 4 - total / 4 * (total / 4) - 1.25F), 1.0F);
}

TEST(Behaviour, O15_AConstantRowGivesExactlyZero) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    for (const double constant : {1234.0, 0.0, -1e-3, 1234.567, 3e7})
      for (const std::size_t width : {1U, 3U, 256U, 1000U}) {
        SCOPED_TRACE(fmt::format("{} times {}", width, constant));
        Tape<T> tape;
        const Var<T> x = tape.input(filled<T>({2, width}, T(constant)), true);
        const Var<T> y = layer_norm(x);
        EXPECT_TRUE(all_zero(array(y)));
        tape.backward(y, random_array<T>({2, width}, 1));
        EXPECT_TRUE(all_finite(gradient(x)));
      }
  });
}

TEST(Behaviour, O16_NoCountedTarget) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    for (const Reduction reduction : {Reduction::mean, Reduction::sum})
      for (const double smoothing : {0.0, 0.1}) {
        Tape<T> tape;
        const Var<T> logits = tape.input(random_array<T>({2, 3}, 1), true);
        const Var<T> loss =
            cross_entropy(logits, xt::xarray<int>{-100, -100}, {.label_smoothing = smoothing, .reduction = reduction});
        EXPECT_EQ(loss.item(), T(0));
        tape.backward(loss);
        EXPECT_EQ(gradient(logits), (xt::xarray<T>{{0, 0, 0}, {0, 0, 0}}));
      }
  });
}

TEST(Behaviour, O16_NoTokenAtAll) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    const Var<T> logits = tape.input(zeros_of<T>({0, 3}), true);
    const xt::xarray<int> targets = zeros_of<int>({0});
    const Var<T> loss = cross_entropy(logits, targets);
    EXPECT_EQ(loss.item(), T(0));
    tape.backward(loss);
    EXPECT_EQ(logits.grad().size(), 0U);
  });
}

TEST(Behaviour, O16_OneIgnoredOneCounted) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    const Var<T> logits = tape.input(xt::xarray<T>{{0, 0, 0}, {0, 0, std::numbers::ln2_v<T>}}, true);
    const Var<T> loss = cross_entropy(logits, xt::xarray<int>{-100, 2});
    tape.backward(loss);
    EXPECT_NEAR(loss.item(), .6931471806, tolerance::behaviour<T>);
    EXPECT_TRUE(near(gradient(logits), xt::xarray<T>{{0, 0, 0}, {T(.25), T(.25), T(-.5)}}, tolerance::behaviour<T>));
    for (int j = 0; j < 3; ++j) EXPECT_EQ(logits.grad()(0, j), T(0));
  });
}

TEST(Behaviour, O16_WhatAnIgnoredRowHoldsDoesNotMatter) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const T nan = std::numeric_limits<T>::quiet_NaN(), inf = std::numeric_limits<T>::infinity();
    Tape<T> tape;
    const Var<T> logits = tape.input(xt::xarray<T>{{nan, inf, -inf}, {0, 0, std::numbers::ln2_v<T>}}, true);
    const Var<T> loss = cross_entropy(logits, xt::xarray<int>{7, 2}, {.ignore_index = 7});
    tape.backward(loss);
    EXPECT_NEAR(loss.item(), .6931471806, tolerance::behaviour<T>);
    EXPECT_TRUE(near(gradient(logits), xt::xarray<T>{{0, 0, 0}, {T(.25), T(.25), T(-.5)}}, tolerance::behaviour<T>));
  });
}

TEST(Behaviour, O17_HugeLogits) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    const Var<T> logits = tape.input(xt::xarray<T>{{-431, 279, 427}}, true);
    const Var<T> loss = cross_entropy(logits, xt::xarray<int>{0});
    tape.backward(loss);
    EXPECT_EQ(loss.item(), T(858));
    EXPECT_EQ(logits.grad()(0, 0), T(-1));
    EXPECT_EQ(logits.grad()(0, 2), T(1));
    const double tiny = static_cast<double>(logits.grad()(0, 1)), right = sizeof(T) == 4 ? 0 : std::exp(279.0 - 427.0);
    EXPECT_NEAR(tiny, right, tolerance::behaviour_double * right);
  });
}

TEST(Behaviour, O17_LogitsOfTenThousandAndMinusInfinity) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const T inf = std::numeric_limits<T>::infinity();
    Tape<T> tape;
    const Var<T> far = tape.input(xt::xarray<T>{{T(1e4), T(-1e4), 0}}, true);
    const Var<T> loss = cross_entropy(far, xt::xarray<int>{1});
    tape.backward(loss);
    EXPECT_EQ(loss.item(), T(2e4));
    EXPECT_EQ(gradient(far), (xt::xarray<T>{{1, -1, 0}}));

    const Var<T> hidden = tape.input(xt::xarray<T>{{-inf, 0, std::log(T(3))}}, true);
    const Var<T> finite = cross_entropy(hidden, xt::xarray<int>{2});
    tape.backward(finite);
    EXPECT_NEAR(finite.item(), std::log(4.0 / 3.0), tolerance::behaviour<T>);
    EXPECT_TRUE(near(gradient(hidden), xt::xarray<T>{{0, T(.25), T(-.25)}}, tolerance::behaviour<T>));
    EXPECT_EQ(hidden.grad()(0, 0), T(0));
    EXPECT_EQ(cross_entropy(hidden, xt::xarray<int>{0}).item(), inf);
  });
}

TEST(Behaviour, O17_SoftmaxAndLogSoftmaxOfHugeLogits) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const T inf = std::numeric_limits<T>::infinity();
    Tape<T> tape;
    const Var<T> x = tape.input(xt::xarray<T>{{-431, 279, 427}, {T(1e4), T(-1e4), T(1e4)}, {-inf, 1, 1}}, true);
    const Var<T> probabilities = softmax(x), logarithms = log_softmax(x);
    const xt::xarray<T> right = {{0, 0, 1}, {T(.5), 0, T(.5)}, {0, T(.5), T(.5)}};
    EXPECT_TRUE(near(array(probabilities), right, tolerance::behaviour<T>));
    const T half = -std::numbers::ln2_v<T>;
    EXPECT_TRUE(near(array(logarithms),
                     xt::xarray<T>{{-858, -148, 0}, {half, T(-2e4) + half, half}, {-inf, half, half}},
                     tolerance::behaviour<T>));
    tape.backward(probabilities, random_array<T>({3, 3}, 1));
    tape.backward(logarithms, random_array<T>({3, 3}, 2));
    EXPECT_TRUE(all_finite(gradient(x)));
  });
}

TEST(Behaviour, O18_MicroBatchesOfUnequalCounts) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const std::vector<xt::xarray<T>> slopes = {{6}, {2, 2, 2}};  // of each token's loss with respect to w
    Parameter<T> w(Shape{}), wrong(Shape{});
    Tape<T> tape;
    for (const auto& micro_batch : slopes) {
      tape.clear();
      tape.backward(sum(tape.input(micro_batch) * w) / 4);       // 4 tokens in the whole step
      tape.backward(mean(tape.input(micro_batch) * wrong) / 2);  // mean of means
    }
    EXPECT_EQ(w.grad()(), T(3));
    EXPECT_EQ(wrong.grad()(), T(4));
  });
}

/// A language model with dropout, and 7 sequences for it whose targets count in some places only.
template <class T>
struct Accumulation {
  static constexpr std::size_t rows = 7, time = 4;
  Rng rng{2};
  TransformerLm<T> model{
      {.vocabulary = 5, .length = time, .width = 8, .heads = 2, .layers = 1, .block = {.dropout = 0.25}}, rng};
  ParameterList<T> list = parameters<T>(model);
  xt::xarray<int> tokens = zeros_of<int>({rows, time}), targets = tokens;

  Accumulation() {
    for (auto& token : tokens) token = static_cast<int>(rng.below(5));
    const std::size_t counted[rows] = {1, 4, 0, 0, 3, 2, 4};  // in each row, from its end
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t t = 0; t < time; ++t)
        targets(r, t) = t + counted[r] >= time ? static_cast<int>(rng.below(5)) : -100;
  }

  /// Steps of k micro-batches each, which lie between the cuts; returns the gradients of each step.
  std::vector<std::vector<xt::xarray<T>>> steps(const std::vector<std::size_t>& cuts, std::size_t k) {
    std::vector<std::vector<xt::xarray<T>>> gradients;
    Tape<T> tape(3);
    zero_grad(list);
    std::size_t counted = 0, row = 0;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const xt::xarray<int> x = xt::view(tokens, xt::range(cuts[i], cuts[i + 1])),
                            y = xt::view(targets, xt::range(cuts[i], cuts[i + 1]));
      tape.clear();
      tape.set_step(gradients.size(), row);
      tape.backward(cross_entropy(model(tape, x), y, {.reduction = Reduction::sum}));
      counted += count_targets(y);
      row += x.shape(0);
      if ((i + 1) % k != 0 && i + 2 != cuts.size()) continue;
      divide_grad(list, counted);
      auto& step = gradients.emplace_back();
      for (auto& entry : list) step.emplace_back(entry.parameter.grad());
      zero_grad(list);
      counted = row = 0;
    }
    return gradients;
  }
  /// The gradients of one batch of all rows, by cross_entropy's own mean.
  std::vector<xt::xarray<T>> one_batch() {
    Tape<T> tape(3);
    zero_grad(list);
    tape.backward(cross_entropy(model(tape, tokens), targets));
    std::vector<xt::xarray<T>> gradients;
    for (auto& entry : list) gradients.emplace_back(entry.parameter.grad());
    return gradients;
  }
};

/// The largest difference between two lists of gradients, relative to the largest gradient.
template <class T>
double relative_difference(const std::vector<xt::xarray<T>>& x, const std::vector<xt::xarray<T>>& y) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < y[i].size(); ++j) {
      difference = std::max<double>(difference, std::abs(x[i].flat(j) - y[i].flat(j)));
      largest = std::max<double>(largest, std::abs(y[i].flat(j)));
    }
  }
  return difference / largest;
}

TEST(Behaviour, O18_AccumulationEqualsTheBigBatch) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Accumulation<T> run;
    const auto right = run.one_batch();
    // Unequal counts; a micro-batch whose targets are all ignored (rows 2 and 3); one without rows; all rows at once.
    for (const auto& cuts : {std::vector<std::size_t>{0, 1, 2, 4, 7}, std::vector<std::size_t>{0, 3, 3, 5, 7},
                             std::vector<std::size_t>{0, 7}}) {
      const auto steps = run.steps(cuts, cuts.size() - 1);
      ASSERT_EQ(steps.size(), 1U);
      EXPECT_LT(relative_difference(steps[0], right), 1e-6) << cuts.size() - 1 << " micro-batches";
    }
  });
}

TEST(Behaviour, O18_TheRemainderIsAStepOfItsOwn) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Accumulation<T> run;
    const auto steps = run.steps({0, 1, 2, 5, 6, 7}, 2);  // 5 micro-batches
    ASSERT_EQ(steps.size(), 3U);
    const auto large = run.steps({0, 2, 6, 7}, 1);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(relative_difference(steps[i], large[i]), 1e-6) << i;
  });
}

TEST(Behaviour, O18_AStepThatCountsNothingHasZeroGradients) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Accumulation<T> run;
    const auto steps = run.steps({2, 3, 4}, 2);
    ASSERT_EQ(steps.size(), 1U);
    for (const auto& gradient : steps[0]) EXPECT_TRUE(all_zero(gradient));
  });
}

TEST(Behaviour, O18_DividingTakesEachGradientOnce) {
  Parameter<double> shared({2}), frozen({1}), untouched({1});
  shared.grad()(0) = 6, shared.grad()(1) = -3;
  frozen.grad()(0) = 6;
  frozen.freeze();
  const ParameterList<double> list{{"a", shared}, {"b", shared}, {"frozen", frozen}, {"untouched", untouched}};
  divide_grad(list, 3);
  EXPECT_EQ(xt::xarray<double>(shared.grad()), (xt::xarray<double>{2, -1}));
  EXPECT_EQ(frozen.grad()(0), 6.0);
  EXPECT_FALSE(untouched.has_grad());
  divide_grad(list, 0);
  EXPECT_EQ(shared.grad()(0), 2.0);
}

TEST(Behaviour, O18_CountsTheTargetsThatCrossEntropyCounts) {
  const xt::xarray<int> targets = {{1, -100, 0}, {-100, 7, 7}};
  EXPECT_EQ(count_targets(targets), 4U);
  EXPECT_EQ(count_targets(targets, 7), 4U);
  EXPECT_EQ(count_targets(targets, 1), 5U);
  EXPECT_EQ(count_targets(xt::xarray<std::uint8_t>{3, 4}), 2U);
  EXPECT_EQ(count_targets(zeros_of<std::int64_t>({0, 4})), 0U);
}

}  // namespace
}  // namespace xtape::behaviour_loss_test
