// The derivative of a function of one number: its bar holds, it costs four calls, and what only looks like a derivative
// is not taken for one.

#include <xtape/framework/train/gradcheck/difference.hpp>

#include "support.hpp"

namespace xtape::gradcheck_difference_test {
namespace {

using namespace detail;

/// What a claim about f at x is judged as.
struct Outcome {
  Reason reason;
  Derivative derivative;
  int calls;
  double next_step;
};

/// `usual` is the size of gradients that the bar is compared with. The second projection is -2 f.
template <class F>
Outcome try_claim(F f, double x, double analytic, double usual = 0, double scale = 0) {
  if (scale == 0) scale = std::max(std::abs(x), 0.1);
  int calls = 0;
  const Line line = [&](double t, double& reached) -> Pair<Projected> {
    ++calls;
    const double moved = x + t;
    reached = moved - x;
    const double y = f(moved);
    return {Projected{y, std::abs(y)}, Projected{-2 * y, 2 * std::abs(y)}};
  };
  double reached = 0;
  Middle middle{line(0, reached), {}};
  middle.noise = measure_noise(line, scale, middle.at);
  calls = 0;
  const double size = std::max(usual, std::abs(analytic));
  const Pair<Claim> claims = {Claim{analytic, 1e-5 * size, 1e-4 * size},
                              Claim{-2 * analytic, 2e-5 * size, 2e-4 * size}};
  const Differentiated found = differentiate(line, 1e-3 * scale, middle, claims);
  EXPECT_EQ(judge(found.of[0], claims[0]), judge(found.of[1], claims[1]));
  return {judge(found.of[0], claims[0]), found.of[0], calls, found.next_step};
}

template <class F>
Reason judged(F f, double x, double analytic, double usual = 0, double scale = 0) {
  return try_claim(f, x, analytic, usual, scale).reason;
}

const auto exponential = [](double x) { return std::exp(x); };
const auto rectified = [](double x) { return std::max(x, 0.0); };

TEST(Difference, TheBarHoldsAndFourCallsSuffice) {
  Rng rng(1);
  for (int i = 0; i < 300; ++i) {
    const double x = rng.normal();
    const std::pair<double, double> values[] = {{std::exp(x), 0}, {std::cos(x), 1}, {1 - std::pow(std::tanh(x), 2), 2}};
    for (const auto& [derivative, function] : values) {
      const auto f = [function = function](double v) {
        return function == 0 ? std::exp(v) : function == 1 ? std::sin(v) : std::tanh(v);
      };
      const Outcome outcome = try_claim(f, x, derivative, 1);
      EXPECT_EQ(outcome.reason, Reason::ok) << function << " at " << x;
      EXPECT_EQ(outcome.calls, 4) << function << " at " << x;
      EXPECT_LE(outcome.derivative.bar, 1e-5);
      EXPECT_EQ(judged(f, x, derivative + 1e-3, 1), Reason::mismatch) << function << " at " << x;
    }
  }
}

TEST(Difference, StepsThatAgreeByAccidentAreNotTrusted) {
  // At v = 0 differences with h and h / 2 agree, 2.5 % away from the slope 1.
  const auto f = [](double at) {
    constexpr double h = 1e-3, b = 1e11, a = -1.25 * b * h * h;
    const double v = at - 1, squared = v * v;
    return v * (1 + squared * (a + b * squared));
  };
  const Outcome right = try_claim(f, 1, 1);
  EXPECT_EQ(right.reason, Reason::ok);
  EXPECT_GT(right.calls, 4);
  EXPECT_EQ(judged(f, 1, 0.97), Reason::mismatch);
}

TEST(Difference, SteepFunctions) {
  const auto f = [](double x) { return std::sin(1000 * x); };
  EXPECT_EQ(judged(f, 0.7, 1000 * std::cos(700)), Reason::ok);
  EXPECT_EQ(judged(f, 0.7, 1010 * std::cos(700)), Reason::mismatch);
  const auto inverse = [](double x) { return 1 / x; };
  EXPECT_EQ(judged(inverse, 0.01, -1e4), Reason::ok);
  EXPECT_EQ(judged(inverse, 0.01, -1.001e4), Reason::mismatch);
  const auto logarithm = [](double x) { return std::log(x); };  // NaN at the ends of a wide step
  EXPECT_EQ(judged(logarithm, 1e-6, 1e6), Reason::ok);
  EXPECT_EQ(judged(logarithm, 1e-6, 1.001e6), Reason::mismatch);
}

TEST(Difference, WhereTheFunctionLevelsOffWithinTheStep) {
  // Wide steps agree about 0, on both sides of a step and of a bump.
  const auto step = [](double x) { return std::tanh(x - 1e6); };
  const auto bump = [](double x) { return std::exp(-(x - 1e6) * (x - 1e6)); };
  const double slope = -0.6 * std::exp(-0.09);
  EXPECT_EQ(judged(step, 1e6, 1), Reason::ok);
  EXPECT_EQ(judged(step, 1e6, 1.01), Reason::mismatch);
  EXPECT_EQ(judged(step, 1e6, 0, 1), Reason::mismatch);
  const double x = 1e6 + 0.3;
  EXPECT_EQ(judged(bump, x, slope), Reason::ok);
  EXPECT_EQ(judged(bump, x, 0, 1), Reason::mismatch);
}

TEST(Difference, WhereTheFunctionSwingsWithinTheStep) {
  const auto f = [](double x) { return std::sin(x); };
  Rng rng(3);
  for (int i = 0; i < 300; ++i) {
    const double x = 1e6 + rng.normal(), slope = std::cos(x);
    EXPECT_EQ(judged(f, x, slope, 1), Reason::ok) << i;
    EXPECT_EQ(judged(f, x, slope + 1e-2, 1), Reason::mismatch) << i;
  }
}

TEST(Difference, AtAKinkTheOneSidedSlopesAreTheBounds) {
  for (const double inside : {0.0, 0.5, 1.0}) {
    const Outcome outcome = try_claim(rectified, 0, inside, 1);
    EXPECT_EQ(outcome.reason, Reason::kink);
    EXPECT_NEAR(outcome.derivative.below, 0, 1e-6);
    EXPECT_NEAR(outcome.derivative.above, 1, 1e-6);
  }
  for (const double outside : {-1.0, -0.01, 1.01, 2.0}) EXPECT_EQ(judged(rectified, 0, outside, 1), Reason::mismatch);
}

TEST(Difference, NearAKinkThereIsOneRightValue) {
  for (const double x : {1e-3, 1e-4, 1e-6, 1e-8, 1e-9}) {
    EXPECT_EQ(judged(rectified, x, 1, 1), Reason::ok) << x;
    EXPECT_EQ(judged(rectified, -x, 0, 1), Reason::ok) << x;
    EXPECT_EQ(judged(rectified, x, 0, 1), Reason::mismatch) << x;
    EXPECT_EQ(judged(rectified, -x, 1, 1), Reason::mismatch) << x;
  }
  EXPECT_LE(judged(rectified, 1e-12, 1, 1), Reason::kink);
}

TEST(Difference, WhereTheSecondDerivativeJumps) {
  const auto f = [](double x) { return x > 0 ? x * x : 0.0; };
  for (const double x : {0.0, 1e-9, 1e-4, 0.3}) EXPECT_EQ(judged(f, x, 2 * x, 1), Reason::ok) << x;
  EXPECT_EQ(judged(f, 0, 1e-3, 1), Reason::mismatch);
}

TEST(Difference, RoundingAsksForWiderSteps) {
  for (const double x : {1e-9, 1e-12}) {
    const Outcome outcome = try_claim(exponential, x, 1, 1, x);
    EXPECT_EQ(outcome.reason, Reason::ok);
    EXPECT_GT(outcome.next_step, 1e-3 * x);
    EXPECT_EQ(judged(exponential, x, 1.001, 1, x), Reason::mismatch);
  }
  // Noise that no small move of x shows: x is rounded to units of 1e-10 on its way.
  const auto coarse = [](double x) {
    volatile double far = x + 1e6;
    return std::exp(far - 1e6);
  };
  Rng rng(2);
  for (int i = 0; i < 200; ++i) {
    const double x = rng.normal();
    EXPECT_EQ(judged(coarse, x, std::exp(x)), Reason::ok) << x;
    EXPECT_EQ(judged(coarse, x, 1.001 * std::exp(x)), Reason::mismatch) << x;
  }
}

TEST(Difference, WhereNothingCanBeToldThatIsSaid) {
  // A constant with noise of 1e-3 that depends on x in no regular way.
  const auto noise = [](double x) { return 1e-3 * std::sin(1e17 * x); };
  EXPECT_EQ(judged(noise, 1, 1e-7), Reason::inconclusive);
  const auto nowhere = [](double x) { return std::sqrt(x - 2); };
  EXPECT_EQ(judged(nowhere, 1, 0), Reason::non_finite);
  EXPECT_EQ(judged(exponential, 1, std::numeric_limits<double>::quiet_NaN()), Reason::non_finite);
}

}  // namespace
}  // namespace xtape::gradcheck_difference_test
