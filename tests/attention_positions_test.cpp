// Where a token stands: rotary, learned and sinusoidal positions, rows padded on the left (cases O12 to O14).

#include <cmath>

#include "attention_paths.hpp"

namespace xtape::attention_positions_test {
namespace {

using Scalars = testing::Types<float, double>;
constexpr RopePairing pairings[] = {RopePairing::interleaved, RopePairing::halves};

template <class T>
class Positions : public testing::Test {
 protected:
  Tape<T> tape;
  Rng rng{4};

  /// x turned as if it stood at the position.
  Var<T> turned(std::initializer_list<T> x, std::size_t position, RopePairing pairing) {
    const xt::xarray<T> row(x);
    const Var<T> input = reshape(tape.input(row), {1, 1, row.size()});
    return rope(input, 1, {.pairing = pairing, .first_position = position});
  }
  double product(Var<T> q, Var<T> k) { return static_cast<double>(sum(q * k).item()); }
};
TYPED_TEST_SUITE(Positions, Scalars);

TYPED_TEST(Positions, O12_PairingAndFrequenciesBelongTogether) {
  using T = TypeParam;
  const auto expect = [&](RopePairing pairing, const xt::xarray<T>& right) {
    const xt::xarray<T> y = reshape(this->turned({1, 2, 3, 4}, 1, pairing), {4}).value();
    EXPECT_TRUE(near(y, right, tolerance::behaviour<T>));
  };
  expect(RopePairing::interleaved, {T(-1.1426396637), T(1.9220755965), T(2.9598506679), T(4.0297995017)});
  expect(RopePairing::halves, {T(-1.9841106486), T(1.9599006675), T(2.4623779024), T(4.0197996683)});
  EXPECT_EQ(RopeOptions{}.pairing, RopePairing::halves);
}

TYPED_TEST(Positions, O12_AProductDependsOnTheDistanceAlone) {
  for (const auto& [pairing, right] :
       {std::pair(RopePairing::interleaved, 12.2861248176), {RopePairing::halves, -2.3887485648}})
    for (const std::size_t shift : {0, 3, 1000}) {
      const auto q = this->turned({1, 2, 3, 4}, 4 + shift, pairing), k = this->turned({.5, -1, 2, 1}, shift, pairing);
      EXPECT_NEAR(this->product(q, k), right, 20 * tolerance::behaviour<TypeParam>);
      const auto further = this->turned({1, 2, 3, 4}, 5 + shift, pairing);
      EXPECT_GT(std::abs(this->product(further, k) - right), 0.1);
    }
}

TYPED_TEST(Positions, O12_PositionZeroIsTheIdentityAndNormsAreKept) {
  using T = TypeParam;
  for (const RopePairing pairing : pairings) {
    const Var<T> x = this->tape.input(random_array<T>({2, 9, 12}, 1));
    const xt::xarray<int> origin = zeros_of<int>({2, 9});
    EXPECT_TRUE(same_bits(array(rope(x, 2, {.pairing = pairing, .positions = this->tape.integers(origin)})), array(x)));
    const Var<T> y = rope(x, 2, {.pairing = pairing});
    EXPECT_TRUE(same_bits(times(array(y), 0, 1), times(array(x), 0, 1)));
    const auto norms = [](Var<T> z) { return sum(z * z, -1); };
    EXPECT_TRUE(near(norms(y).value(), norms(x).value(), tolerance::two_paths<T>));
    EXPECT_FALSE(near(y.value(), x.value(), tolerance::two_paths<T>));
  }
}

TYPED_TEST(Positions, O12_AnglesStayExactFarFromTheOrigin) {
  using T = TypeParam;
  const std::size_t far = 1'000'003;  // in float the angle itself would be off by hundredths
  const xt::xarray<T> y = reshape(this->turned({1, 0}, far, RopePairing::halves), {2}).value();
  const xt::xarray<T> right = {static_cast<T>(std::cos(1'000'003.0)), static_cast<T>(std::sin(1'000'003.0))};
  EXPECT_TRUE(near(y, right, tolerance::behaviour<T>));
}

TYPED_TEST(Positions, O12_WidthsAndPositionsThatDoNotFitAreRefused) {
  using T = TypeParam;
  const Var<T> x = this->tape.input(zeros_of<T>({2, 3, 12}));
  const auto refused = [&](std::size_t heads, const RopeOptions& options, std::initializer_list<const char*> parts) {
    expect_message<Error>([&] { rope(x, heads, options); }, parts);
  };
  refused(4, {}, {"[rope]", "even head width", "4 heads", "got (2, 3, 12)"});
  refused(0, {}, {"[rope]", "0 heads"});
  refused(~std::size_t{0} / 2 + 1, {}, {"[rope]"});  // twice as many are 0 in 64 bits
  refused(2, {.base = 0}, {"[rope]", "base must be positive", "got 0"});
  refused(2, {.base = std::nan("")}, {"[rope]", "base"});
  refused(2, {.positions = this->tape.integers(xt::xarray<int>{{1, 2, 3}})}, {"[rope]", "(batch 2, time 3)", "(1, 3)"});
  const xt::xarray<int> positions = zeros_of<int>({2, 3});
  refused(2, {.first_position = 1, .positions = this->tape.integers(positions)}, {"[rope]", "got both"});
}

// ---- padding on the left

TYPED_TEST(Positions, O13_PaddingDoesNotCount) {
  using T = TypeParam;
  const xt::xarray<bool> tokens = {{false, false, true, true, true}, {true, true, true, true, true}};
  const Integers positions = positions_without_padding(this->tape, this->tape.mask(tokens));
  ASSERT_EQ(positions.shape, (Shape{2, 5}));
  EXPECT_EQ(std::vector<std::int64_t>(positions.data, positions.data + 10),
            (std::vector<std::int64_t>{0, 0, 0, 1, 2, 0, 1, 2, 3, 4}));
  const xt::xarray<T> ones = {{{1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}}, {{1, 0}, {1, 0}, {1, 0}, {1, 0}, {1, 0}}};
  const Var<T> x = rope(this->tape.input(ones), 1, {.positions = positions});
  const xt::xarray<T> scores = array(matmul(x, transpose(x, {0, 2, 1})) * (1 / std::sqrt(2.0)));
  EXPECT_NEAR(scores(0, 4, 2), -.2942602501, tolerance::behaviour<T>);  // mixing 4 with 0 gives -.4621958368
  EXPECT_NEAR(scores(1, 4, 0), -.4621958368, tolerance::behaviour<T>);
  expect_message<ShapeError>(
      [&] {
        positions_without_padding(this->tape, this->tape.mask(xt::xarray<bool>{true, false}));
      },
      {"[positions_without_padding]", "(batch, time)", "got (2,)"});
}

template <class T>
TransformerLm<T> language_model(bool rotary, RopePairing pairing) {
  Rng rng(3);
  TransformerBlockOptions block{.hidden = 16, .kv_heads = 2};
  if (rotary) block.rope = RopeOptions{.pairing = pairing};
  return TransformerLm<T>({.vocabulary = 7, .length = 9, .width = 16, .heads = 4, .block = block}, rng);
}

TYPED_TEST(Positions, O13_ARowPaddedOnTheLeftGivesWhatItGivesAlone) {
  using T = TypeParam;
  const xt::xarray<int> padded = {{0, 0, 0, 4, 1, 5}, {2, 3, 6, 1, 1, 0}}, alone = {{4, 1, 5}};
  const xt::xarray<bool> tokens = {{false, false, false, true, true, true}, {true, true, true, true, true, true}};
  for (const bool rotary : {false, true})
    for (const RopePairing pairing : pairings) {
      const auto model = language_model<T>(rotary, pairing);
      EXPECT_EQ(model.position_embedding.has_value(), !rotary);
      const auto run = [&](const auto& row, bool masked, bool placed) {
        const Attend<T> attend{.allow_keys = masked ? this->tape.mask(tokens) : Mask{}};
        const Integers positions = placed ? positions_without_padding(this->tape, attend.allow_keys) : Integers{};
        return array(model(this->tape, row, attend, positions));
      };
      const xt::xarray<T> right = run(alone, false, false), whole = run(padded, true, true),
                          misplaced = run(padded, true, false);
      const xt::xarray<T> first = xt::view(whole, xt::range(0, 1), xt::range(3, 6));
      EXPECT_TRUE(near(first, right, tolerance::two_paths<T>));
      const xt::xarray<T> counted_over_padding = xt::view(misplaced, xt::range(0, 1), xt::range(3, 6));
      // Rotary positions know distances alone, which padding on the left does not change; learned ones do not.
      EXPECT_EQ(static_cast<bool>(near(counted_over_padding, right, tolerance::two_paths<T>)), rotary);
    }
}

TYPED_TEST(Positions, O14_RotaryAttentionInPiecesEqualsTheWhole) {
  using T = TypeParam;
  MultiHeadAttention<T> layer(12, 2, this->rng, {.kv_heads = 1, .rope = RopeOptions{}});
  const Var<T> x = this->tape.input(random_array<T>({2, 5, 12}, 1));
  const Attend<T> causal{.causal = true};
  const xt::xarray<T> whole = array(layer(x, causal));
  EXPECT_TRUE(near(layer.with_weights(x, x, x, causal).output.value(), whole, tolerance::two_paths<T>));
  for (std::size_t begin = 0; begin < 5; ++begin)
    for (std::size_t end = begin + 1; end <= 5; ++end) {
      const Var<T> keys = slice(x, 1, 0, end);
      const Var<T> y = layer(slice(x, 1, begin, end), keys, keys, causal);
      EXPECT_TRUE(near(y.value(), times(whole, begin, end), tolerance::two_paths<T>)) << begin << " to " << end;
    }
  expect_message<ShapeError>([&] { layer(x, slice(x, 1, 0, 3), slice(x, 1, 0, 3)); },
                             {"[MultiHeadAttention]", "a key at its place", "(2, 5, 12)", "(2, 3, 12)"});
}

// ---- linear biases

TEST(Alibi, SlopesAreThoseOfThePaper) {
  EXPECT_EQ(alibi_slopes(8),
            (std::vector<double>{1. / 2, 1. / 4, 1. / 8, 1. / 16, 1. / 32, 1. / 64, 1. / 128, 1. / 256}));
  EXPECT_EQ(alibi_slopes(1), (std::vector<double>{1. / 256}));
  // Not a power of two: the slopes of 4 heads, then the first and the third of 8.
  EXPECT_EQ(alibi_slopes(6), (std::vector<double>{1. / 4, 1. / 16, 1. / 64, 1. / 256, 1. / 2, 1. / 8}));
  const auto sixteen = alibi_slopes(16);
  EXPECT_NEAR(sixteen[0], 0.70710678118654757, 1e-15);
  EXPECT_EQ(sixteen[15], 1. / 256);
}

TYPED_TEST(Positions, AlibiLowersAScoreByItsDistance) {
  using T = TypeParam;
  // The last query stands at the last key: the first one at key 1.
  const xt::xarray<T> bias = array(alibi(this->tape, 2, 2, 3));
  const xt::xarray<T> right = {{{{T(-1. / 16), 0, T(-1. / 16)}, {T(-2. / 16), T(-1. / 16), 0}},
                                {{T(-1. / 256), 0, T(-1. / 256)}, {T(-2. / 256), T(-1. / 256), 0}}}};
  EXPECT_TRUE(near(bias, right, 0));
  const Integers places = this->tape.integers(xt::xarray<int>{{1, 2}, {0, 1}});
  const xt::xarray<T> placed = array(alibi(this->tape, 2, places, 3));
  EXPECT_TRUE(near(xt::xarray<T>(xt::view(placed, xt::range(0, 1))), right, 0));
  EXPECT_EQ(placed(1, 0, 0, 2), T(-2. / 16));
  EXPECT_EQ(placed(1, 1, 1, 0), T(-1. / 256));
  expect_message<ShapeError>(
      [&] {
        alibi(this->tape, 2, this->tape.integers(xt::xarray<int>{1, 2}), 3);
      },
      {"[alibi]", "(batch, time)", "got (2,)"});
  // Weights of keys with one and the same score: exp(-distance / 16) over their sum.
  const Var<T> zeros = this->tape.input(zeros_of<T>({1, 3, 2}));
  for (const AttentionKernel kernel : {AttentionKernel::materialised, AttentionKernel::tiled}) {
    const Attend<T> attend{.causal = true, .bias = alibi(this->tape, 2, 3, 3), .kernel = kernel};
    const xt::xarray<T> weights = array(attention_with_weights(zeros, zeros, zeros, 2, attend).weights);
    const double sum = 1 + std::exp(-1. / 16) + std::exp(-2. / 16);
    EXPECT_NEAR(weights(0, 0, 2, 0), std::exp(-2. / 16) / sum, tolerance::behaviour<T>);
    EXPECT_NEAR(weights(0, 0, 2, 2), 1 / sum, tolerance::behaviour<T>);
  }
}

TYPED_TEST(Positions, AlibiInPiecesWithACacheEqualsTheWhole) {
  using T = TypeParam;
  const MultiHeadAttention<T> layer(12, 6, this->rng, {.kv_heads = 2});
  const auto no_grad = this->tape.no_grad();
  const Var<T> x = this->tape.input(random_array<T>({2, 5, 12}, 1));
  const xt::xarray<T> whole = array(layer(x, {.causal = true, .bias = alibi(this->tape, 6, 5, 5)}));
  for (std::size_t cut = 1; cut < 5; ++cut) {
    auto cache = layer.cache(2, 5);
    layer(slice(x, 1, 0, cut), cache, {}, {.bias = alibi(this->tape, 6, cut, cut)});
    const Integers places = cache.positions(this->tape, {2, 5 - cut});
    const Var<T> y = layer(slice(x, 1, cut, 5), cache, {}, {.bias = alibi(this->tape, 6, places, 5)});
    EXPECT_TRUE(near(y.value(), times(whole, cut, 5), tolerance::decoding<T>)) << cut;
  }
}

// ---- tables

TYPED_TEST(Positions, OfSinusoidsFollowTheFormula) {
  using T = TypeParam;
  const SinusoidalPositions<T> layer(50, 5);
  const Var<T> x = this->tape.input(random_array<T>({2, 40, 5}, 1), true);
  const xt::xarray<T> y = array(layer(x)), numbers = array(x);
  for (const std::size_t t : {0, 1, 39})
    for (std::size_t column = 0; column < 5; ++column) {
      const double angle = static_cast<double>(t) / std::pow(10000, 2 * std::floor(column / 2) / 5);
      const double right = column % 2 == 0 ? std::sin(angle) : std::cos(angle);
      EXPECT_NEAR(y(1, t, column) - numbers(1, t, column), right, tolerance::behaviour<T>) << t << ", " << column;
    }
  EXPECT_TRUE(parameters<T>(const_cast<SinusoidalPositions<T>&>(layer)).empty());
  xt::xarray<int> backwards = zeros_of<int>({2, 40});
  for (int t = 0; t < 40; ++t) xt::view(backwards, xt::all(), t) = 39 - t;
  const xt::xarray<T> z = array(layer(x, this->tape.integers(backwards)));
  EXPECT_NEAR(z(1, 39, 1) - numbers(1, 39, 1), 1, tolerance::behaviour<T>);
  EXPECT_NEAR(z(1, 0, 0) - numbers(1, 0, 0), std::sin(39.0), tolerance::behaviour<T>);
  const xt::xarray<T> dy = random_array<T>({2, 40, 5}, 2);
  this->tape.backward(layer(x), dy);
  EXPECT_TRUE(same_bits(gradient(x), dy));
}

}  // namespace
}  // namespace xtape::attention_positions_test
