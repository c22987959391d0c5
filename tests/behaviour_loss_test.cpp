// Normalisation far from zero, cross-entropy at its edges, accumulation over micro-batches (cases O15 to O18).

#include <limits>
#include <numbers>

#include "behaviour.hpp"

namespace xtape {
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
        const Var<T> x =
            tape.input(xt::full_like(xt::xarray<T>(xt::zeros<T>({std::size_t{2}, width})), T(constant)), true);
        const Var<T> y = layer_norm(x);
        EXPECT_TRUE(xt::all(xt::equal(y.value(), T(0))));
        tape.backward(y, random_array<T>({2, width}, 1));
        EXPECT_TRUE(xt::all(xt::isfinite(x.grad())));
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
    const Var<T> logits = tape.input(xt::xarray<T>(xt::zeros<T>({0, 3})), true);
    const xt::xarray<int> targets = xt::zeros<int>({0});
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
    EXPECT_TRUE(xt::all(xt::isfinite(x.grad())));
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

/// Rows begin to end of the logits of a small model, as a loss summed over the targets that count.
template <class T>
Var<T> summed_loss(Tape<T>& tape, const Linear<T>& model, const xt::xarray<T>& x, const std::vector<int>& targets,
                   std::size_t begin, std::size_t end) {
  const Var<T> rows = slice(tape.input(x), 0, begin, end);
  xt::xarray<int> labels = xt::zeros<int>({end - begin});
  std::copy(targets.begin() + static_cast<std::ptrdiff_t>(begin), targets.begin() + static_cast<std::ptrdiff_t>(end),
            labels.begin());
  return cross_entropy(model(rows), labels, {.reduction = Reduction::sum});
}

TEST(Behaviour, O18_AccumulationEqualsTheBigBatch) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const xt::xarray<T> x = random_array<T>({8, 5}, 1);
    const std::vector<int> targets = {2, -100, 0, 3, -100, -100, 1, 1};
    Rng rng(2);
    Linear<T> model(5, 4, rng);
    auto list = parameters<T>(model);
    Tape<T> tape;
    tape.backward(summed_loss(tape, model, x, targets, 0, 8) / 5);  // 5 targets count
    std::vector<xt::xarray<T>> big_batch;
    for (auto& entry : list) big_batch.emplace_back(entry.parameter.grad());

    // Unequal counts, one micro-batch whose targets are all ignored (rows 4 and 5), and one without rows.
    for (const auto& cuts : {std::vector<std::size_t>{0, 1, 4, 6, 8}, std::vector<std::size_t>{0, 3, 3, 7, 8}}) {
      zero_grad(list);
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        tape.clear();
        tape.backward(summed_loss(tape, model, x, targets, cuts[i], cuts[i + 1]) / 5);
      }
      for (std::size_t i = 0; i < list.size(); ++i)
        EXPECT_TRUE(near(list[i].parameter.grad(), big_batch[i], tolerance::two_paths<T>)) << list[i].name;
    }
  });
}

}  // namespace
}  // namespace xtape
