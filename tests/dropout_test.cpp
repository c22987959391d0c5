// Dropout: the identity in evaluation, and in training a mask that is a pure function of seed, step, op and place.

#include <xtensor/xview.hpp>

#include <xtape/framework/kernels/dropout.hpp>

#include "behaviour.hpp"

namespace xtape::dropout_test {
namespace {

using Array = xt::xarray<double>;

/// Which elements dropout keeps: 1 / (1 - p) or 0.
Array mask_of(Tape<double>& tape, const Shape& shape, double p) {
  const Array ones = ones_of<double>(shape);
  return array(dropout(tape.input(ones), p));
}

TEST(Dropout, IsExactlyTheIdentityInEvaluationAndDrawsNoNumbers) {
  const Array x = random_array<double>({4, 5}, 1);
  Tape<double> tape(3), fresh(3);
  tape.set_training(false);
  for (int call = 0; call < 100; ++call) EXPECT_EQ(array(dropout(tape.input(x), 0.5)), x);
  tape.set_training(true);
  EXPECT_EQ(mask_of(tape, {4, 5}, 0.5), mask_of(fresh, {4, 5}, 0.5))
      << "the next training mask is that of a fresh tape";
  EXPECT_NE(mask_of(tape, {100}, 0.5), mask_of(tape, {100}, 0.5)) << "and training draws";
}

TEST(Dropout, EvaluationReachesEveryLayerOfAModel) {
  Rng rng(1);
  const TransformerLm<double> model({.vocabulary = 5, .length = 4, .width = 8, .heads = 2, .block = {.dropout = 0.5}},
                                    rng);
  const xt::xarray<int> tokens{{0, 1, 2, 3}};
  Tape<double> tape;
  const auto training = array(model(tape, tokens));
  EXPECT_NE(array(model(tape, tokens)), training);
  tape.set_training(false);
  const auto evaluation = array(model(tape, tokens));
  EXPECT_EQ(array(model(tape, tokens)), evaluation);
  tape.set_training(true);
  EXPECT_NE(array(model(tape, tokens)), evaluation);
}

TEST(Dropout, KeepsAllWithProbabilityZeroAndNothingWithOne) {
  Tape<double> tape;
  const double infinity = std::numeric_limits<double>::infinity();
  const auto x = tape.input(Array{1, -2, infinity}, true);
  EXPECT_EQ(array(dropout(x, 0)), array(x));
  const auto nothing = dropout(x, 1);
  EXPECT_EQ(array(nothing), (Array{0, 0, 0})) << "an infinite element is dropped too, not multiplied by 0";
  tape.backward(sum(nothing));
  EXPECT_EQ(gradient(x), (Array{0, 0, 0}));
}

TEST(Dropout, KeptShareAndMeanAreRightWithinFiveSigma) {
  constexpr std::size_t n = 200000;
  Tape<double> tape(7);
  for (double p : {0.1, 0.5, 0.9}) {
    const Array mask = mask_of(tape, {n}, p);
    double kept = 0, total = 0;
    for (double m : mask) {
      EXPECT_TRUE(m == 0 || m == 1 / (1 - p));
      kept += m != 0, total += m;
    }
    const double sigma = std::sqrt(p * (1 - p) / n);
    EXPECT_NEAR(kept / n, 1 - p, 5 * sigma) << p;
    EXPECT_NEAR(total / n, 1, 5 * sigma / (1 - p)) << p;
  }
}

TEST(Dropout, NeighboursAreDroppedIndependently) {
  constexpr std::size_t n = 200000;
  Tape<double> tape(7);
  const Array mask = mask_of(tape, {n}, 0.5);
  for (std::size_t lag : {1, 2, 3, 4, 8, 64, 4096}) {
    double both = 0;
    for (std::size_t i = 0; i + lag < n; ++i) both += mask(i) != 0 && mask(i + lag) != 0;
    const double pairs = static_cast<double>(n - lag);
    EXPECT_NEAR(both / pairs, 0.25, 5 * std::sqrt(0.25 * 0.75 / pairs) * std::sqrt(2.0)) << "lag " << lag;
  }
}

TEST(Dropout, ForwardAndBackwardUseTheSameMask) {
  Tape<double> tape(1);
  const Array x = random_array<double>({7, 11}, 1), dy = random_array<double>({7, 11}, 2);
  const auto in = tape.input(x, true);
  const auto y = dropout(in, 0.3);
  tape.backward(y, dy);
  const double scale = 1 / (1 - 0.3);
  std::size_t dropped = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool kept = y.data()[i] != 0;
    dropped += !kept;
    EXPECT_EQ(y.data()[i], kept ? x.flat(i) * scale : 0);
    EXPECT_EQ(in.grad().flat(i), kept ? dy.flat(i) * scale : 0);
  }
  EXPECT_GT(dropped, 0u);
  EXPECT_LT(dropped, x.size());
}

TEST(Dropout, TheGradientAddsToWhatIsThere) {
  Tape<double> tape(1);
  const auto x = tape.input(Array{1, 2, 3, 4}, true);
  const auto y = dropout(x, 0.5);
  tape.backward(sum(y));
  const Array once = gradient(x);
  tape.backward(sum(y));
  EXPECT_EQ(gradient(x), Array(2.0 * once));
}

TEST(Dropout, PassesTheGradientCheckerWhileItIsOn) {
  Rng rng(1);
  EXPECT_TRUE(gradcheck([](Var<double> x) { return dropout(x * x, 0.4); }, {{3, 5}}));
  EXPECT_TRUE(gradcheck(TransformerBlock<double>(4, 2, rng, {.dropout = 0.3}), {{2, 3, 4}}));
}

TEST(Dropout, TheSameStepGivesTheSameBits) {
  Tape<double> tape(5);
  tape.set_step(12);
  const Array first = mask_of(tape, {40}, 0.5), second = mask_of(tape, {40}, 0.5);
  for (int repeat = 0; repeat < 3; ++repeat) {
    tape.clear();
    tape.set_step(12);
    EXPECT_EQ(mask_of(tape, {40}, 0.5), first);
    EXPECT_EQ(mask_of(tape, {40}, 0.5), second);
  }
  Tape<double> resumed(5);
  resumed.set_step(12);
  EXPECT_EQ(mask_of(resumed, {40}, 0.5), first) << "on another tape of the same seed as well";
}

TEST(Dropout, AnotherStepOpOrSeedGivesAnotherMask) {
  Tape<double> tape(5), other_seed(6);
  tape.set_step(1);
  other_seed.set_step(1);
  const Array mask = mask_of(tape, {100}, 0.5);
  EXPECT_NE(mask_of(tape, {100}, 0.5), mask) << "another op";
  EXPECT_NE(mask_of(other_seed, {100}, 0.5), mask) << "another seed";
  tape.clear();
  tape.set_step(2);
  EXPECT_NE(mask_of(tape, {100}, 0.5), mask) << "another step";
}

TEST(Dropout, ClearCountsAsTheNextStep) {
  Tape<double> tape(5), named(5);
  tape.clear();
  named.set_step(1);
  EXPECT_EQ(mask_of(tape, {100}, 0.5), mask_of(named, {100}, 0.5));
}

TEST(Dropout, RowsOfADividedBatchEqualThoseOfTheWhole) {
  // 3 numbers a row, so that the parts begin inside a block of four random words.
  const Shape whole_shape{10, 3};
  Tape<double> tape(5);
  tape.set_step(4);
  const Array whole = mask_of(tape, whole_shape, 0.5);
  for (const auto& [first, rows] : {std::pair<std::size_t, std::size_t>{0, 3}, {3, 1}, {4, 6}, {9, 1}, {5, 0}}) {
    tape.clear();
    tape.set_step(4, first);
    const Array part = mask_of(tape, {rows, 3}, 0.5);
    EXPECT_EQ(part, Array(xt::view(whole, xt::range(first, first + rows), xt::all())))
        << first << " to " << first + rows;
  }
}

TEST(Dropout, TheFirstRowHoldsUntilClear) {
  Tape<double> tape(5), fresh(5);
  tape.set_step(0, 100);
  tape.clear();
  fresh.clear();
  EXPECT_EQ(mask_of(tape, {50}, 0.5), mask_of(fresh, {50}, 0.5));
}

TEST(Dropout, DoesNotDependOnTheNumberOfThreads) {
  std::vector<Array> masks;
  for (int n : {1, 2, 3, 8}) {
    set_threads(n);
    Tape<double> tape(5);
    masks.push_back(mask_of(tape, {100, 333}, 0.3));
  }
  for (const Array& mask : masks) EXPECT_EQ(mask, masks[0]);
}

TEST(Dropout, FloatAndDoubleDropTheSameElements) {
  Tape<float> tape(5);
  Tape<double> wide(5);
  const xt::xarray<float> ones = ones_of<float>({1000});
  const xt::xarray<float> narrow = dropout(tape.input(ones), 0.3).value();
  EXPECT_TRUE(near(narrow, mask_of(wide, {1000}, 0.3), tolerance::float_against_double));
}

// The kernel computes many counters at once; what it draws is the generator's, wherever a row begins and ends.
TEST(Dropout, DropsWhereTheGeneratorSays) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    for (const std::uint64_t first : {0ull, 1ull, 6ull, 63ull, (1ull << 34) - 5})
      for (const std::size_t n : {0, 1, 63, 64, 65, 4200})
        for (const double p : {1e-12, .3, .5, 1.}) {
          const kernels::DropoutKey key{.seed = ~7ull, .step = 5ull << 33 | 9, .ordinal = 3, .first_element = first};
          std::vector<T> x(n), y(n, T(10)), right(n, T(10));
          for (std::size_t i = 0; i < n; ++i) x[i] = T(1) + static_cast<T>(i % 7);
          for (std::size_t i = 0; i < n; ++i) {
            const std::uint64_t element = first + i;
            const auto words = philox(key.seed, key.step, key.ordinal << 40 | element >> 2);
            if (words[element & 3] >= kernels::drop_below(p))
              right[i] += x[i] * static_cast<T>(kernels::kept_factor(p));
          }
          kernels::dropout(n, p, key, x.data(), y.data(), true);
          EXPECT_EQ(y, right) << first << " " << n << " " << p;
        }
  });
}

TEST(Dropout, RefusesAProbabilityOutsideZeroToOne) {
  Tape<double> tape;
  const auto x = tape.input(1.0);
  for (double p : {-0.1, 1.1, std::nan("")}) {
    expect_message<Error>([&] { dropout(x, p); }, {"[dropout]", "p must be in [0, 1]"});
    expect_message<Error>([&] { Dropout{p}; }, {"[Dropout]", "p must be in [0, 1]"});
  }
}

}  // namespace
}  // namespace xtape::dropout_test
