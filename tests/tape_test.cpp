// Forward and backward over a tape: custom ops, accumulation, several outputs, retained gradients, no_grad.

#include "snake.hpp"

namespace xtape::tape_test {
namespace {

using Array = xt::xarray<double>;

/// x and its square as two outputs of one op.
std::array<Var<double>, 2> powers(Var<double> x) {
  Tape<double>& tape = x.tape();
  const Var<double> first = tape.output("powers", x.shape(), x), second = tape.output("powers", x.shape(), x);
  set_each(first, x, [](double v) { return v; });
  set_each(second, x, [](double v) { return v * v; });
  tape.on_backward({first, second}, [=] {
    add_slope(x, first, [](double) { return 1.0; });
    add_slope(x, second, [](double v) { return 2 * v; });
  });
  return {first, second};
}

TEST(CustomOp, WrittenInXtensorExpressionsPassesTheGradientChecker) {
  Rng rng(1);
  EXPECT_TRUE(gradcheck([](Var<double> x) { return snake(x); }, {{2, 3}}));
  EXPECT_TRUE(gradcheck(SnakeMlp<double>(6, 8, rng), {{2, 3, 6}}));
  Tape<double> tape;
  EXPECT_NEAR(snake(tape.input(0.5)).item(), 0.5 + std::pow(std::sin(0.5), 2), tolerance::reference);
}

TEST(CustomOp, WithAWrongBackwardIsCaughtByTheGradientChecker) {
  const auto wrong = [](Var<double> x) {
    Var<double> y = x.tape().output("wrong", x.shape(), x);
    set_each(y, x, [](double v) { return v * v; });
    x.tape().on_backward(y, [x, y] { add_slope(x, y, [](double v) { return v; }); });
    return y;
  };
  EXPECT_FALSE(gradcheck(wrong, {{2, 3}}));
}

TEST(Backward, AValueUsedOnSeveralPathsAddsThemUp) {
  Tape<double> tape;
  const auto x = tape.input(1.0, true), a = tape.input(1.0, true);
  const auto u = x * a, v = x * x;
  tape.backward(x * u + v * a + x * u);
  EXPECT_EQ(x.grad()(), 6);
  EXPECT_EQ(a.grad()(), 3);
}

TEST(Backward, TheSameOperandTwiceCountsTwice) {
  Tape<double> tape;
  const auto x = tape.input(Array{{1, 2}, {3, 4}}, true);
  tape.backward(sum(x + x));
  EXPECT_EQ(gradient(x), (Array{{2, 2}, {2, 2}}));
  tape.clear();
  const auto y = tape.input(Array{{1, 2}, {3, 4}}, true);
  tape.backward(sum(y * y));
  EXPECT_EQ(gradient(y), (Array{{2, 4}, {6, 8}}));
}

TEST(Backward, TakesTheUpstreamGradientOfAnyOutput) {
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2, 3}, true);
  const auto y = x * x;
  const Array dy{1, 10, 100};
  tape.backward(y, dy);
  EXPECT_EQ(gradient(x), (Array{2, 40, 600}));
  tape.backward(y, 2.0 * dy);
  EXPECT_EQ(gradient(x), (Array{6, 120, 1800})) << "an expression will do, and a second pass adds";
}

TEST(Backward, TheUpstreamGradientMayBeMadeFromARetainedOne) {
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2, 3}, true);
  const auto y = x * x;
  tape.retain_grad(y);
  tape.backward(y, Array{1, 10, 100});
  tape.backward(y, 2.0 * y.grad());
  EXPECT_EQ(gradient(y), (Array{2, 20, 200}));
  EXPECT_EQ(gradient(x), (Array{6, 120, 1800}));
}

TEST(Backward, OfAnInputItselfAddsOne) {
  Tape<double> tape;
  const auto x = tape.input(5.0, true);
  tape.backward(x);
  tape.backward(x);
  EXPECT_EQ(x.grad()(), 2);
}

TEST(Backward, AcceptsAnyValueOfOneElement) {
  Tape<double> tape;
  const auto x = tape.input(3.0 * ones_of<double>({1, 1}), true);
  tape.backward(x * x);
  EXPECT_EQ(x.grad()(0, 0), 6);
}

TEST(Backward, ASecondPassAddsIntoInputsAndParametersAgain) {
  Parameter<double> w({2});
  w.write() = Array{3, 4};
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2}, true);
  const auto hidden = x * w;
  const auto loss = sum(hidden * hidden);
  tape.backward(loss);
  const Array once_x = gradient(x), once_w = w.grad();
  EXPECT_EQ(once_x, (Array{18, 64}));
  tape.backward(loss);
  EXPECT_EQ(gradient(x), Array(2.0 * once_x)) << "not three times: intermediate gradients start anew";
  EXPECT_EQ(Array(w.grad()), Array(2.0 * once_w));
}

TEST(Backward, OverALaterRecordAddsIntoTheSameParameter) {
  Parameter<double> w({1});
  Tape<double> tape;
  for (int step = 1; step <= 3; ++step) {
    tape.clear();
    tape.backward(sum(tape.input(Array{5}) * w));
    EXPECT_EQ(w.grad()(0), 5 * step);
  }
  w.zero_grad();
  tape.clear();
  tape.backward(sum(tape.input(Array{5}) * w));
  EXPECT_EQ(w.grad()(0), 5);
}

TEST(Backward, ReachesOnlyWhatTheResultDependsOn) {
  Tape<double> tape;
  const auto x = tape.input(2.0, true), unused = tape.input(2.0, true), constant = tape.input(2.0);
  const auto aside = unused * unused;
  tape.backward(x * constant);
  EXPECT_EQ(x.grad()(), 2);
  EXPECT_EQ(unused.grad()(), 0);
  EXPECT_THROW(constant.grad(), TapeError);
  EXPECT_TRUE(aside.requires_grad());
}

TEST(GradientSlot, IsOverwrittenOnFirstTouchAndAddedToLater) {
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2}, true);
  const auto first = tape.slot(x);
  EXPECT_FALSE(first.accumulate);
  first.data[0] = 7, first.data[1] = 8;
  const auto second = tape.slot(x);
  EXPECT_TRUE(second.accumulate);
  EXPECT_EQ(second.data, first.data);
  EXPECT_EQ(gradient(x), (Array{7, 8}));
}

TEST(GradientSlot, OfAParameterIsItsOwnGradient) {
  Parameter<double> w({2});
  Tape<double> tape;
  const auto x = tape.var(w);
  EXPECT_FALSE(tape.slot(x).accumulate);
  EXPECT_TRUE(tape.slot(x).accumulate);
  EXPECT_EQ(tape.slot(x).data, w.grad_data());
  w.zero_grad();
  EXPECT_FALSE(tape.slot(x).accumulate);
}

TEST(SeveralOutputs, AnyOneOrAllMayBeUsedAndTheOthersReadAsZero) {
  const auto gradient_of = [](auto&& use) {
    Tape<double> tape;
    const auto x = tape.input(3.0, true);
    tape.backward(use(powers(x)));
    return x.grad()();
  };
  EXPECT_EQ(gradient_of([](auto p) { return 5 * p[0]; }), 5);
  EXPECT_EQ(gradient_of([](auto p) { return 5 * p[1]; }), 30);
  EXPECT_EQ(gradient_of([](auto p) { return 5 * p[0] + 7 * p[1]; }), 47);
}

TEST(SeveralOutputs, WhenNoneIsUsedTheCallbackDoesNotRun) {
  Tape<double> tape;
  const auto x = tape.input(3.0, true);
  const auto unused = powers(x);
  tape.backward(x * 2);
  EXPECT_EQ(x.grad()(), 2);
  EXPECT_EQ(unused[1].item(), 9);
}

TEST(SeveralOutputs, ABackwardFromOneForgetsWhatTheOthersHeldBefore) {
  Tape<double> tape;
  const auto x = tape.input(3.0, true);
  const auto p = powers(x);
  tape.retain_grad(p[1]);
  tape.backward(p[1]);
  EXPECT_EQ(x.grad()(), 6);
  tape.backward(p[0]);
  EXPECT_EQ(x.grad()(), 7) << "the second output has no part in the second pass";
  EXPECT_EQ(p[1].grad()(), 0);
}

TEST(SeveralOutputs, ABackwardFromEachInTurnAddsUp) {
  Tape<double> tape;
  const auto x = tape.input(3.0, true);
  const auto p = powers(x);
  tape.backward(p[1] * 1);
  tape.backward(p[0]);
  EXPECT_EQ(x.grad()(), 7);
}

TEST(RetainGrad, KeepsTheGradientOfAnIntermediateValue) {
  Tape<double> tape;
  const auto x = tape.input(3.0, true);
  const auto y = x * x;
  const auto z = y * 2;
  tape.retain_grad(y);
  tape.backward(z * z);
  EXPECT_EQ(y.grad()(), 72);
  expect_message<TapeError>([&] { z.grad(); }, {"[grad]", "[multiply]", "retain_grad"});
  tape.backward(z);
  EXPECT_EQ(y.grad()(), 2) << "a second pass starts it anew";
  EXPECT_EQ(x.grad()(), 72 * 6 + 2 * 6) << "while inputs add up";
}

TEST(RetainGrad, WorksThroughAReshapeWhichSharesTheGradient) {
  Tape<double> tape;
  const auto x = tape.input(Array{{1, 2}, {3, 4}}, true);
  const auto y = x * x;
  const auto flat = reshape(y, {4});
  tape.retain_grad(flat);
  tape.backward(sum(flat * flat));
  EXPECT_EQ(gradient(flat), (Array{2, 8, 18, 32}));
  EXPECT_EQ(gradient(y), (Array{{2, 8}, {18, 32}}));
}

TEST(RetainGrad, OfAValueWithoutGradientIsRefused) {
  Tape<double> tape;
  expect_message<TapeError>([&] { tape.retain_grad(tape.input(1.0)); }, {"[retain_grad]", "requires a gradient"});
}

TEST(NoGrad, RecordsNothing) {
  Parameter<double> w(Shape{});
  Tape<double> tape;
  const auto x = tape.input(3.0, true);
  {
    const auto guard = tape.no_grad();
    EXPECT_FALSE(tape.recording());
    const auto y = x * w;
    EXPECT_FALSE(y.requires_grad());
    EXPECT_FALSE(reshape(x, {1}).requires_grad());
    EXPECT_FALSE(tape.var(w).requires_grad());
    expect_message<TapeError>([&] { tape.backward(y); }, {"[backward]", "no_grad"});
    {
      const auto inner = tape.no_grad();
      EXPECT_FALSE((x * w).requires_grad());
    }
    EXPECT_FALSE((x * w).requires_grad()) << "the outer guard still holds";
  }
  EXPECT_TRUE((x * w).requires_grad());
}

TEST(NoGrad, EndsWithTheBlockEvenWhenAnExceptionEndsIt) {
  Tape<double> tape;
  try {
    const auto guard = tape.no_grad();
    throw std::runtime_error("stop");
  } catch (const std::runtime_error&) {
  }
  EXPECT_TRUE(tape.recording());
}

TEST(NoGrad, GivesTheSameValuesAsARecordingRun) {
  const Array x = random_array<double>({3, 5}, 1);
  Tape<double> tape;
  const auto f = [&] { return array(softmax(layer_norm(tape.input(x, true)) * 3)); };
  const Array recorded = f();
  const auto guard = tape.no_grad();
  EXPECT_EQ(f(), recorded);
}

TEST(Tape, AnExpressionIsEvaluatedOnEntry) {
  Tape<double> tape;
  Array a{{1, 2, 3}, {4, 5, 6}};
  const auto transposed = tape.input(xt::transpose(a)), reversed = tape.input(xt::flip(a, 1)),
             lazy = tape.input(a + 1.0);
  a.fill(0);
  EXPECT_EQ(array(transposed), (Array{{1, 4}, {2, 5}, {3, 6}}));
  EXPECT_EQ(array(reversed), (Array{{3, 2, 1}, {6, 5, 4}}));
  EXPECT_EQ(array(lazy), (Array{{2, 3, 4}, {5, 6, 7}}));
}

TEST(Tape, RunsVeryDeepGraphsWithoutRecursion) {
  Tape<double> tape;
  const auto x = tape.input(1.0, true);
  Var<double> y = x;
  for (int i = 0; i < 50000; ++i) y = y + y * 1e-6;
  tape.backward(y);
  EXPECT_NEAR(x.grad()(), std::pow(1 + 1e-6, 50000), tolerance::behaviour_double);
}

TEST(Tape, AShapeThatWasAskedForOutlivesTheGrowthOfTheRecord) {
  Tape<double> tape;
  const auto x = tape.input(Array{{1, 2, 3}});
  const auto& shape = x.shape();
  for (int i = 0; i < 5000; ++i) tape.number(1);
  EXPECT_EQ(shape, Shape({1, 3}));
  static_assert(!std::is_reference_v<decltype(x.shape())>,
                "a reference would point into a record that moves as it grows");
}

}  // namespace
}  // namespace xtape::tape_test
