// What holds for attention whatever its numbers are: causality, weights that are a distribution, heads that stand side
// by side, gradients that add up where one value has several parts to play.

#include "attention_paths.hpp"

namespace xtape::attention_properties_test {
namespace {

using Scalars = testing::Types<float, double>;

template <class T>
MultiHeadAttention<T> layer_of(std::size_t width, std::size_t heads) {
  Rng rng(5);
  MultiHeadAttention<T> layer(width, heads, rng);
  init_normal(*layer.in_proj_bias, 0.5, rng);
  init_normal(*layer.out_proj.bias, 0.5, rng);
  return layer;
}

// ---- causality

constexpr std::size_t lengths_to_try[] = {2, 7, 131};

template <class T>
class AttentionCausality : public testing::Test {};
TYPED_TEST_SUITE(AttentionCausality, Scalars);

template <class T>
xt::xarray<T> run(Path path, const MultiHeadAttention<T>& layer, const xt::xarray<T>& x, bool causal) {
  Tape<T> tape;
  return array(self_attention_by(path, layer, tape.input(x), {.causal = causal}));
}

TYPED_TEST(AttentionCausality, LaterInputsDoNotTouchEarlierOutputs) {
  using T = TypeParam;
  const auto layer = layer_of<T>(8, 2);
  for (const Path path : all_paths)
    for (const std::size_t time : lengths_to_try) {
      const xt::xarray<T> x = random_array<T>({2, time, 8}, 1);
      for (const std::size_t t : {std::size_t{0}, time / 2 - 1, time - 2}) {
        SCOPED_TRACE(testing::Message() << to_string(path) << ", t = " << t << " of " << time);
        xt::xarray<T> changed = x;
        xt::view(changed, xt::all(), xt::range(t + 1, time)) = random_array<T>({2, time - t - 1, 8}, 2);
        const auto seen = [&](bool causal) {
          return !same_bits(times(run(path, layer, x, causal), 0, t + 1),
                            times(run(path, layer, changed, causal), 0, t + 1));
        };
        EXPECT_FALSE(seen(true));
        EXPECT_TRUE(seen(false));  // without the mask the change is seen
      }
    }
}

TYPED_TEST(AttentionCausality, AnInputTouchesTheOutputOfItsOwnPlace) {
  using T = TypeParam;
  const auto layer = layer_of<T>(8, 2);
  for (const Path path : all_paths)
    for (const std::size_t t : {0, 3, 6}) {
      const xt::xarray<T> x = random_array<T>({2, 7, 8}, 1);
      xt::xarray<T> changed = x;
      xt::view(changed, xt::all(), t) += T(1);
      EXPECT_FALSE(
          same_bits(times(run(path, layer, x, true), t, t + 1), times(run(path, layer, changed, true), t, t + 1)))
          << to_string(path) << ", t = " << t;
    }
}

template <class T>
xt::xarray<T> logits_of(const TransformerLm<T>& model, const xt::xarray<int>& tokens) {
  Tape<T> tape;
  return array(model(tape, tokens));
}

TYPED_TEST(AttentionCausality, LogitsOfAWholeModelDependOnNoLaterToken) {
  using T = TypeParam;
  for (const Norm norm : {Norm::pre, Norm::post})
    for (const std::size_t time : lengths_to_try) {
      Rng rng(3);
      const TransformerLm<T> model(
          {.vocabulary = 11, .length = time, .width = 8, .heads = 2, .layers = 2, .block = {.norm = norm}}, rng);
      xt::xarray<int> tokens = zeros_of<int>({2, time});
      for (int& token : tokens) token = static_cast<int>(rng.uniform() * 10);
      const xt::xarray<T> logits = logits_of(model, tokens);
      for (const std::size_t t : {std::size_t{0}, time / 2 - 1, time - 2}) {
        SCOPED_TRACE(testing::Message() << "t = " << t << " of " << time);
        xt::xarray<int> later = tokens, own = tokens;
        xt::view(later, xt::all(), xt::range(t + 1, time)) += 1;
        xt::view(own, xt::all(), t) += 1;
        const xt::xarray<T> after_later = logits_of(model, later), after_own = logits_of(model, own);
        EXPECT_TRUE(same_bits(times(logits, 0, t + 1), times(after_later, 0, t + 1)));
        EXPECT_FALSE(same_bits(times(logits, t + 1, t + 2), times(after_later, t + 1, t + 2)));
        EXPECT_TRUE(same_bits(times(logits, 0, t), times(after_own, 0, t)));
        EXPECT_FALSE(same_bits(times(logits, t, t + 1), times(after_own, t, t + 1)));
      }
    }
}

TYPED_TEST(AttentionCausality, APrefixGivesWhatTheWholeGivesThere) {
  using T = TypeParam;
  const auto layer = layer_of<T>(8, 2);
  const xt::xarray<T> x = random_array<T>({2, 9, 8}, 1);
  for (const Path path : all_paths)
    for (std::size_t n = 1; n < 9; ++n) {
      const xt::xarray<T> prefix = times(x, 0, n);
      EXPECT_TRUE(
          near(run(path, layer, prefix, true), times(run(path, layer, x, true), 0, n), tolerance::two_paths<T>));
      EXPECT_FALSE(
          near(run(path, layer, prefix, false), times(run(path, layer, x, false), 0, n), tolerance::two_paths<T>));
    }
}

// ---- weights

template <class T>
class AttentionWeights : public testing::Test {};
TYPED_TEST_SUITE(AttentionWeights, Scalars);

TYPED_TEST(AttentionWeights, OfEachQuerySumToOne) {
  using T = TypeParam;
  Tape<T> tape;
  const auto q = tape.input(random_array<T>({2, 40, 6}, 1, 3)), k = tape.input(random_array<T>({2, 40, 6}, 2, 3));
  const xt::xarray<std::size_t> lengths = {33, 1};
  for (const Attend<T>& attend :
       {Attend<T>{}, Attend<T>{.causal = true}, Attend<T>{.allow_keys = tape.lengths(lengths, 40)}}) {
    const xt::xarray<T> weights = array(attention_with_weights(q, k, k, 3, attend).weights);
    const xt::xarray<double> sums = xt::sum<double>(weights, {3}), ones = ones_of<double>({2, 3, 40});
    EXPECT_TRUE(near(sums, ones, tolerance::two_paths<T>));
    const xt::xarray<double> sums_of_keys = xt::sum<double>(weights, {2});
    EXPECT_FALSE(near(sums_of_keys, ones, tolerance::two_paths<T>));  // the other axis is no distribution
  }
}

TYPED_TEST(AttentionWeights, OfTheFirstQueryUnderACausalMaskAreOneOnTheFirstKey) {
  using T = TypeParam;
  Tape<T> tape;
  const auto x = tape.input(random_array<T>({2, 5, 6}, 1));
  const xt::xarray<T> causal = array(attention_with_weights(x, x, x, 3, {.causal = true}).weights);
  const xt::xarray<T> free = array(attention_with_weights(x, x, x, 3).weights);
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t h = 0; h < 3; ++h) {
      EXPECT_EQ(causal(b, h, 0, 0), T(1));
      for (std::size_t j = 1; j < 5; ++j) EXPECT_EQ(causal(b, h, 0, j), T(0));
      EXPECT_LT(free(b, h, 0, 0), T(1));
    }
}

/// x (batch, time, heads * width) -> (batch, heads, time, width)
template <class T>
Var<T> in_heads(Var<T> x, std::size_t heads) {
  const Shape s = x.shape();
  return transpose(reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
}
/// The way back.
template <class T>
Var<T> side_by_side(Var<T> heads) {
  const Shape s = heads.shape();
  return reshape(transpose(heads, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}

TYPED_TEST(AttentionWeights, AreThoseThatMadeTheOutputAndDoNotChangeIt) {
  using T = TypeParam;
  Tape<T> tape;
  const auto q = tape.input(random_array<T>({2, 7, 6}, 1)), k = tape.input(random_array<T>({2, 7, 6}, 2)),
             v = tape.input(random_array<T>({2, 7, 6}, 3));
  const xt::xarray<std::size_t> lengths = {4, 7};
  const Attend<T> attend{.causal = true, .allow_keys = tape.lengths(lengths, 7)};
  const auto result = attention_with_weights(q, k, v, 3, attend);
  for (const Path path : {Path::separate, Path::packed, Path::separate_tiled, Path::packed_tiled})
    EXPECT_TRUE(near(attention_by(path, q, k, v, 3, attend).value(), result.output.value(), tolerance::two_paths<T>));
  const auto from_weights = [&](Var<T> weights) { return side_by_side(matmul(weights, in_heads(v, 3))); };
  EXPECT_TRUE(near(from_weights(result.weights).value(), result.output.value(), tolerance::two_paths<T>));
  const auto unmasked = attention_with_weights(q, k, v, 3).weights;
  EXPECT_FALSE(near(from_weights(unmasked).value(), result.output.value(), tolerance::two_paths<T>));
}

TYPED_TEST(AttentionWeights, AreTheExponentialOfScoresMinusLogSumExp) {
  using T = TypeParam;
  Tape<T> tape;
  const auto q = tape.input(random_array<T>({2, 4, 6}, 1)), k = tape.input(random_array<T>({2, 7, 6}, 2));
  const auto result = attention_with_weights(q, k, k, 3, {.scale = 0.5});
  const Var<T> scores = matmul(in_heads(q, 3), transpose(in_heads(k, 3), {0, 1, 3, 2})) * 0.5;
  const Var<T> log_sum_exp = reshape(result.log_sum_exp, {2, 3, 4, 1});
  EXPECT_TRUE(near(exp(scores - log_sum_exp).value(), result.weights.value(), tolerance::two_paths<T>));
}

// ---- heads

TYPED_TEST(AttentionWeights, HeadsStandSideBySideAndAMergeWithoutTransposeIsSeen) {
  using T = TypeParam;
  Tape<T> tape;
  const auto q = tape.input(random_array<T>({2, 5, 12}, 1)), k = tape.input(random_array<T>({2, 5, 12}, 2)),
             v = tape.input(random_array<T>({2, 5, 12}, 3));
  const Var<T> scores = matmul(in_heads(q, 3), transpose(in_heads(k, 3), {0, 1, 3, 2})) * 0.5;  // 1 / sqrt(4)
  const Var<T> heads = matmul(softmax(scores), in_heads(v, 3));                                 // (2, 3, 5, 4)
  const Var<T> right = side_by_side(heads), wrong = reshape(heads, {2, 5, 12});
  ASSERT_EQ(wrong.shape(), right.shape());
  for (const Path path : all_paths) {
    const Var<T> y = attention_by(path, q, k, v, 3);
    EXPECT_TRUE(near(y.value(), right.value(), tolerance::two_paths<T>)) << to_string(path);
    EXPECT_FALSE(near(y.value(), wrong.value(), tolerance::two_paths<T>)) << to_string(path);
  }
}

TEST(AttentionParameters, AreAsManyWhateverTheNumberOfHeads) {
  for (const std::size_t heads : {1, 2, 8, 64}) {
    Rng rng(1);
    MultiHeadAttention<float> layer(512, heads, rng), without_bias(512, heads, rng, {.bias = false});
    EXPECT_EQ(count(parameters<float>(layer)), 1'050'624u);
    EXPECT_EQ(count(parameters<float>(without_bias)), 1'048'576u);
  }
}

// ---- one Var in several parts

template <class T>
class AttentionSharing : public testing::Test {};
TYPED_TEST_SUITE(AttentionSharing, Scalars);

/// Which of the values x, y and z play query, key and value.
using Parts = std::array<std::size_t, 3>;

/// Gradients of x, y and z after `passes` backward passes over one record.
template <class T>
std::array<xt::xarray<T>, 3> gradients(Path path, Parts parts, Parts numbers, int passes) {
  Tape<T> tape;
  std::array<Var<T>, 3> x;
  for (std::size_t i = 0; i < 3; ++i) x[i] = tape.input(random_array<T>({2, 5, 6}, 10 + numbers[i]), true);
  const Var<T> y = attention_by(path, x[parts[0]], x[parts[1]], x[parts[2]], 3, {.causal = true});
  for (int pass = 0; pass < passes; ++pass) tape.backward(y, random_array<T>({2, 5, 6}, 9));
  return {gradient(x[0]), gradient(x[1]), gradient(x[2])};
}

TYPED_TEST(AttentionSharing, GradientsOfOneVarAreTheSumOverItsParts) {
  using T = TypeParam;
  for (const Path path : all_paths)
    for (const Parts& parts : {Parts{0, 0, 0}, Parts{0, 0, 1}, Parts{0, 1, 1}, Parts{0, 1, 0}})
      for (const int passes : {1, 2}) {
        SCOPED_TRACE(testing::Message() << to_string(path) << ", parts " << parts[0] << parts[1] << parts[2]);
        const auto shared = gradients<T>(path, parts, {0, 1, 2}, passes);
        const auto copies = gradients<T>(path, {0, 1, 2}, parts, 1);  // three inputs that hold the same numbers
        std::array<xt::xarray<T>, 3> sums;
        for (auto& sum : sums) sum = zeros_of<T>({2, 5, 6});
        for (std::size_t i = 0; i < 3; ++i) xt::noalias(sums[parts[i]]) += T(passes) * copies[i];
        for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(near(shared[i], sums[i], tolerance::two_paths<T>));
        const std::size_t twice = parts[0] == parts[1] ? parts[0] : parts[2];  // plays at least two parts
        for (const auto& copy : copies) EXPECT_FALSE(near(shared[twice], copy, tolerance::two_paths<T>));
      }
}

// The weights are recorded after the output that the backward passes start from.
TYPED_TEST(AttentionSharing, ASecondBackwardStartsEveryOutputAnew) {
  using T = TypeParam;
  Tape<T> tape;
  const Var<T> x = tape.input(random_array<T>({2, 5, 6}, 1), true);
  const auto result = attention_with_weights(x, x, x, 3);
  const xt::xarray<T> dy = random_array<T>({2, 5, 6}, 2);
  tape.backward(result.output, dy);
  const xt::xarray<T> of_output = gradient(x);

  tape.retain_grad(result.weights);
  tape.backward(sum(result.output) + sum(result.weights * result.weights));
  EXPECT_FALSE(all_zero(result.weights.grad()));
  const xt::xarray<T> before = gradient(x);
  tape.backward(result.output, dy);
  const xt::xarray<T> added = x.grad() - before;
  EXPECT_TRUE(near(added, of_output, tolerance::two_paths<T>));  // nothing is left of what the weights had received
  EXPECT_TRUE(all_zero(result.weights.grad()));
}

TYPED_TEST(AttentionSharing, OneTokenAttendsToItself) {
  using T = TypeParam;
  for (const Path path : all_paths)
    for (const bool causal : {false, true}) {
      Tape<T> tape;
      const auto q = tape.input(random_array<T>({3, 1, 8}, 1), true),
                 k = tape.input(random_array<T>({3, 1, 8}, 2), true),
                 v = tape.input(random_array<T>({3, 1, 8}, 3), true);
      const xt::xarray<T> dy = random_array<T>({3, 1, 8}, 4);
      const Var<T> y = attention_by(path, q, k, v, 2, {.causal = causal});
      tape.backward(y, dy);
      EXPECT_TRUE(same_bits(array(y), array(v))) << to_string(path);
      EXPECT_TRUE(same_bits(gradient(v), dy)) << to_string(path);
      EXPECT_TRUE(all_zero(q.grad()) && all_zero(k.grad())) << to_string(path);  // a softmax over one score is constant
    }
}

}  // namespace
}  // namespace xtape::attention_properties_test
