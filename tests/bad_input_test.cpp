// Every op and layer called with what does not fit: a typed exception that names the op, what was expected and what
// came. Sizes of 0, which are no error wherever mathematics allows them, stand in empty_test.cpp; stale and foreign
// handles in tape_errors_test.cpp.

#include <functional>

#include "support.hpp"

namespace xtape::bad_input_test {
namespace {

using Array = xt::xarray<double>;
using V = Var<double>;

class BadInput : public testing::Test {
 protected:
  Tape<double> tape;
  Rng rng{1};
  /// A value of the given shape that requires a gradient.
  V of(const Shape& shape) { return tape.input(random_array<double>(shape, 1), true); }

  template <class F>
  void expect_shape_error(F&& f, std::initializer_list<const char*> parts) {
    expect_message<ShapeError>(f, parts);
    EXPECT_TRUE(tape.recording());
    EXPECT_NO_THROW(of({2}) * 2) << "the tape goes on after a refusal";
  }
};

TEST_F(BadInput, ArithmeticThatDoesNotBroadcast) {
  const V a = of({2, 3}), b = of({4, 3});
  expect_shape_error([&] { a + b; }, {"[add]", "(2, 3)", "(4, 3)"});
  expect_shape_error([&] { a - b; }, {"[subtract]", "(2, 3)", "(4, 3)"});
  expect_shape_error([&] { a* b; }, {"[multiply]", "(2, 3)", "(4, 3)"});
  expect_shape_error([&] { a / b; }, {"[divide]", "(2, 3)", "(4, 3)"});
}

TEST_F(BadInput, AxesThatAreNotThere) {
  const V x = of({2, 3});
  expect_shape_error([&] { sum(x, {2}); }, {"[sum]", "[-2, 2)", "got 2"});
  expect_shape_error([&] { sum(x, {0, 0}); }, {"[sum]", "axis 0 twice"});
  expect_shape_error([&] { mean(x, {-3}); }, {"[mean]", "[-2, 2)", "got -3"});
  expect_shape_error([&] { softmax(x, 2); }, {"[softmax]", "[-2, 2)", "got 2"});
  expect_shape_error([&] { log_softmax(x, -3); }, {"[log_softmax]", "[-2, 2)", "got -3"});
  expect_shape_error([&] { slice(x, 5, 0, 1); }, {"[slice]", "[-2, 2)", "got 5"});
  expect_shape_error([&] { transpose(x, {0, 2}); }, {"[transpose]", "[-2, 2)", "got 2"});
  expect_shape_error([&] { concat({x, x}, 2); }, {"[concat]", "[-2, 2)", "got 2"});
  expect_shape_error([&] { sum(of({}), {0}); }, {"[sum]"});
}

TEST_F(BadInput, RowOpsOnAScalar) {
  expect_shape_error([&] { softmax(of({})); }, {"[softmax]", "scalar"});
  expect_shape_error([&] { log_softmax(of({})); }, {"[log_softmax]", "scalar"});
  expect_shape_error([&] { layer_norm(of({})); }, {"[layer_norm]", "got ()"});
}

TEST_F(BadInput, MatmulOfWidthsThatDoNotMatch) {
  expect_shape_error([&] { matmul(of({2, 3}), of({4, 5})); }, {"[matmul]", "(..., m, k)", "(2, 3)", "(4, 5)"});
  expect_shape_error([&] { matmul(of({3}), of({4})); }, {"[matmul]", "(3,)", "(4,)"});
  expect_shape_error([&] { matmul(of({}), of({4})); }, {"[matmul]", "()", "(4,)"});
  expect_shape_error([&] { matmul(of({2, 2, 3}), of({5, 3, 4})); }, {"[matmul]", "(2,)", "(5,)"});
}

TEST_F(BadInput, LinearOfWidthsThatDoNotMatch) {
  const V weight = of({4, 3});
  expect_shape_error([&] { linear(of({2, 5}), weight); }, {"[linear]", "x must be (..., 3)", "got (2, 5)"});
  expect_shape_error([&] { linear(of({}), weight); }, {"[linear]", "got ()"});
  expect_shape_error([&] { linear(of({2, 3}), of({3})); }, {"[linear]", "weight must be (out, in)", "got (3,)"});
  expect_shape_error([&] { linear(of({2, 3}), weight, of({3})); }, {"[linear]", "bias must be (4,)", "got (3,)"});
}

TEST_F(BadInput, ShapeOpsThatCannotBe) {
  const V x = of({2, 3});
  expect_shape_error([&] { reshape(x, {4, 2}); }, {"[reshape]", "6 elements", "(2, 3)", "(4, 2)"});
  expect_shape_error([&] { transpose(x, {0}); }, {"[transpose]", "2 axes", "got 1"});
  expect_shape_error([&] { slice(x, 1, 2, 4); }, {"[slice]", "end <= 3", "begin 2 and end 4"});
  expect_shape_error([&] { slice(x, 1, 2, 1); }, {"[slice]", "begin 2 and end 1"});
  expect_shape_error([&] { concat({x, of({2, 4})}, 0); }, {"[concat]", "(2, 4)", "(2, 3)"});
  expect_shape_error([&] { concat({x, of({3})}, 0); }, {"[concat]", "(3,)", "(2, 3)"});
  expect_shape_error([&] { concat(std::vector<V>{}, 0); }, {"[concat]", "got 0"});
  expect_shape_error([&] { concat(std::vector<V>(65, x), 0); }, {"[concat]", "1 to 64", "got 65"});
}

TEST_F(BadInput, LayerNormOfAnotherWidth) {
  const V x = of({2, 3});
  expect_shape_error([&] { layer_norm(of({2, 0})); }, {"[layer_norm]", "width at least 1", "(2, 0)"});
  expect_shape_error([&] { layer_norm(x, of({4})); }, {"[layer_norm]", "gain must be (3,)", "got (4,)"});
  expect_shape_error([&] { layer_norm(x, of({3}), of({1, 3})); }, {"[layer_norm]", "bias must be (3,)", "got (1, 3)"});
  expect_message<Error>([&] { layer_norm(x, {}, {}, -1); }, {"[layer_norm]", "eps", "got -1"});
}

TEST_F(BadInput, TokensAndTargetsOutOfRangeAreNamedWithTheirPlace) {
  const V table = of({4, 3});
  expect_shape_error(
      [&] {
        embedding(table, xt::xarray<int>{{0, 1, 2}, {3, 4, 0}});
      },
      {"[embedding]", "every token must be in [0, 4)", "got 4 at (1, 1) of (2, 3)"});
  expect_shape_error([&] { embedding(table, xt::xarray<std::int8_t>{0, -1}); }, {"[embedding]", "got -1 at (1,)"});
  expect_shape_error([&] { embedding(table, xt::xarray<std::uint64_t>{~std::uint64_t{0}}); },
                     {"[embedding]", "at (0,)"});
  expect_shape_error(
      [&] {
        cross_entropy(table, xt::xarray<int>{0, 1, 2, 3});
      },
      {"[cross_entropy]", "every target must be in [0, 3) or -100", "got 3 at (3,) of (4,)"});
  expect_shape_error(
      [&] {
        cross_entropy(table, xt::xarray<int>{0, 1, -1, 2});
      },
      {"[cross_entropy]", "got -1 at (2,)"});
  EXPECT_NO_THROW(cross_entropy(table, xt::xarray<int>{0, 1, -1, 2}, {.ignore_index = -1}));
}

TEST_F(BadInput, TokensTargetsAndTablesOfAnotherRank) {
  expect_shape_error([&] { embedding(of({4}), xt::xarray<int>{0}); }, {"[embedding]", "(count, width)", "got (4,)"});
  expect_shape_error(
      [&] {
        embedding(of({4, 3}), zeros_of<int>({1, 1, 1, 1}));
      },
      {"[embedding]", "rank at most 3", "(1, 1, 1, 1)"});
  expect_shape_error(
      [&] {
        cross_entropy(of({4, 3}), xt::xarray<int>{{0, 0, 0, 0}});
      },
      {"[cross_entropy]", "(..., classes)", "(1, 4)", "(4, 3)"});
  expect_shape_error([&] { cross_entropy(of({}), xt::xarray<int>{0}); }, {"[cross_entropy]", "()"});
  expect_message<Error>(
      [&] {
        cross_entropy(of({1, 3}), xt::xarray<int>{0}, {.label_smoothing = 1.5});
      },
      {"[cross_entropy]", "label_smoothing", "got 1.5"});
}

TEST_F(BadInput, AttentionOfShapesThatDoNotMatch) {
  const V q = of({2, 5, 12}), k = of({2, 4, 12}), v = of({2, 4, 6});
  const auto refused = [&](V a, V b, V c, std::size_t heads, std::initializer_list<const char*> parts) {
    expect_shape_error([&] { attention(a, b, c, heads); }, parts);
    expect_shape_error([&] { attention_with_weights(a, b, c, heads); }, {"[attention_with_weights]"});
  };
  refused(of({5, 12}), k, v, 3, {"[attention]", "(batch, time, width)", "(5, 12)"});
  refused(q, k, v, 0, {"[attention]", "multiple of heads 0", "(2, 5, 12)"});
  refused(q, k, v, 5, {"[attention]", "multiple of heads 5", "(2, 5, 12)"});
  refused(of({2, 5, 0}), of({2, 4, 0}), v, 3, {"[attention]", "(2, 5, 0)"});
  refused(q, of({2, 4, 10}), v, 3, {"[attention]", "k must be (batch 2, time, 12)", "(2, 5, 12)", "got (2, 4, 10)"});
  refused(q, of({3, 4, 12}), v, 3, {"[attention]", "k must be (batch 2, time, 12)", "got (3, 4, 12)"});
  refused(q, k, of({2, 5, 6}), 3, {"[attention]", "v must be (batch 2, time 4", "got (2, 5, 6)"});
  refused(q, k, of({2, 4, 7}), 3, {"[attention]", "multiple of heads 3", "got (2, 4, 7)"});
  EXPECT_NO_THROW(attention(q, k, v, 3));
}

TEST_F(BadInput, PackedAttentionOfAWidthThatDoesNotDivide) {
  for (const auto& [shape, heads] :
       {std::pair(Shape{2, 5, 12}, 0), {Shape{2, 5, 12}, 3}, {Shape{2, 5, 0}, 1}, {Shape{5, 12}, 2}})
    expect_shape_error([&, s = shape, h = static_cast<std::size_t>(heads)] { attention_packed(of(s), h); },
                       {"[attention_packed]", "(heads + 2 * kv_heads) * head width", to_string(shape).c_str()});
  EXPECT_NO_THROW(attention_packed(of({2, 5, 12}), 2));
}

TEST_F(BadInput, MasksOfAnotherShape) {
  const V q = of({2, 5, 4}), k = of({2, 3, 4});
  const Mask queries = tape.mask(ones_of<bool>({2, 5})), keys = tape.mask(ones_of<bool>({2, 3}));
  expect_shape_error([&] { attention(q, k, k, 2, {.allow_keys = queries}); },
                     {"[attention]", "allow_keys must be (batch 2, time 3)", "got (2, 5)"});
  expect_shape_error([&] { attention(q, k, k, 2, {.allow_queries = keys}); },
                     {"[attention]", "allow_queries must be (batch 2, time 5)", "got (2, 3)"});
  EXPECT_NO_THROW(attention(q, k, k, 2, {.allow_keys = keys, .allow_queries = queries}));
}

TEST_F(BadInput, LengthsOutOfRange) {
  expect_shape_error(
      [&] {
        tape.lengths(xt::xarray<int>{1, 6, 2}, 5);
      },
      {"[lengths]", "from 0 to 5", "got 6 in row 1"});
  expect_shape_error([&] { tape.lengths(xt::xarray<int>{-1}, 5); }, {"[lengths]", "got -1 in row 0"});
  expect_shape_error([&] { tape.lengths(xt::xarray<int>{{1, 1}}, 5); }, {"[lengths]", "(batch,)", "got (1, 2)"});
  expect_shape_error([&] { tape.lengths(xt::xarray<std::uint64_t>{~std::uint64_t{0}}, 5); }, {"[lengths]", "in row 0"});
}

TEST_F(BadInput, RanksAboveFour) {
  const Array five = xt::zeros<double>({1, 1, 1, 1, 1});
  expect_shape_error([&] { tape.input(five); }, {"[shape]", "rank must be at most 4"});
  expect_shape_error([&] { tape.mask(five > 0.0); }, {"rank must be at most 4"});
  expect_shape_error([&] { embedding(of({2, 2}), xt::zeros<int>({1, 1, 1, 1, 1})); }, {"rank must be at most 4"});
}

TEST_F(BadInput, MoreElementsThanMemoryCanHold) {
  const std::size_t huge = std::size_t{1} << 32;  // huge * huge is 0 in 64 bits
  const V x = of({0, 1}), wide = reshape(x, {0, huge});
  expect_shape_error([&] { reshape(of({0}), {huge, huge}); }, {"[shape]", "(4294967296, 4294967296)"});
  expect_shape_error([&] { tape.output("mine", {huge, huge}); }, {"[shape]"});
  expect_shape_error([&] { tape.lengths(xt::xarray<int>{1, 1}, ~std::size_t{0} / 4); }, {"[shape]"});
  expect_shape_error([&] { matmul(transpose(wide), wide); }, {"[shape]"});
  expect_shape_error([&] { sum(reshape(x, {0, huge, huge}), {0}); }, {"[shape]"});
  const std::size_t third = ~std::size_t{0} / 3 + 1;  // 3 * third is 2 in 64 bits
  expect_shape_error([&] { attention_packed(of({1, 2, 6}), third); }, {"[attention_packed]"});
}

// ---- layers

TEST_F(BadInput, LayersOfImpossibleSizes) {
  const std::vector<std::pair<const char*, std::function<void()>>> impossible{
      {"[Linear]", [&] { Linear<double>(0, 3, rng); }},
      {"[Linear]", [&] { Linear<double>(3, 0, rng); }},
      {"[LayerNorm]", [&] { LayerNorm<double>(0); }},
      {"[RmsNorm]", [&] { RmsNorm<double>(0); }},
      {"[Linear]", [&] { GatedFeedForward<double>(3, 0, rng); }},
      {"[Embedding]", [&] { Embedding<double>(0, 3, rng); }},
      {"[Embedding]", [&] { Embedding<double>(3, 0, rng); }},
      {"[LearnedPositions]", [&] { LearnedPositions<double>(0, 3, rng); }},
      {"[MultiHeadAttention]", [&] { MultiHeadAttention<double>(6, 0, rng); }},
      {"[MultiHeadAttention]", [&] { MultiHeadAttention<double>(6, 4, rng); }},
      {"[Linear]", [&] { MultiHeadAttention<double>(0, 1, rng); }},
      {"[MultiHeadAttention]", [&] { MultiHeadAttention<double>(6, 3, rng, {.kv_heads = 2}); }},
      {"[MultiHeadAttention]", [&] { MultiHeadAttention<double>(6, 2, rng, {.rope = RopeOptions{}}); }},
      {"[SinusoidalPositions]", [&] { SinusoidalPositions<double>(0, 3); }},
      {"[SinusoidalPositions]", [&] { SinusoidalPositions<double>(3, 0); }},
      {"[TransformerEncoder]", [&] { TransformerEncoder<double>(6, 2, rng, {.layers = 0}); }},
      {"[TransformerDecoder]", [&] { TransformerDecoder<double>(6, 2, rng, {.layers = 0}); }},
      {"[MultiHeadAttention]", [&] { TransformerDecoderLayer<double>(6, 4, rng); }},
      {"[SinusoidalPositions]", [&] { EncoderDecoder<double>({.source_vocabulary = 3, .target_vocabulary = 3}, rng); }},
      {"[MultiHeadAttention]", [&] { TransformerBlock<double>(6, 4, rng); }},
      {"[TransformerLm]",
       [&] { TransformerLm<double>({.vocabulary = 3, .length = 3, .width = 6, .heads = 2, .layers = 0}, rng); }},
      {"[Embedding]", [&] { TransformerLm<double>({.vocabulary = 0, .length = 3}, rng); }},
      {"[LearnedPositions]", [&] { TransformerLm<double>({.vocabulary = 3, .length = 0}, rng); }}};
  for (const auto& [layer, make] : impossible) {
    SCOPED_TRACE(layer);
    expect_message<ShapeError>(make, {layer, "got"});
  }
  expect_message<Error>([&] { TransformerDecoderLayer<double>(6, 2, rng, {.attention_only = true}); },
                        {"[TransformerDecoderLayer]", "got attention_only"});
}

TEST_F(BadInput, LayersCalledWithAnotherWidth) {
  const MultiHeadAttention<double> attend(6, 2, rng);
  const V fits = of({2, 4, 6}), wide = of({2, 4, 8}), flat = of({4, 6});
  expect_shape_error([&] { Linear<double>(6, 3, rng)(wide); }, {"[linear]", "(..., 6)", "(2, 4, 8)"});
  expect_shape_error([&] { LayerNorm<double>(6)(wide); }, {"[layer_norm]", "(8,)", "(6,)"});
  expect_shape_error([&] { FeedForward<double>(6, 12, rng)(wide); }, {"[linear_gelu]", "(..., 6)", "(2, 4, 8)"});
  expect_shape_error([&] { GatedFeedForward<double>(6, 12, rng)(wide); }, {"[linear]", "(..., 6)", "(2, 4, 8)"});
  expect_shape_error([&] { RmsNorm<double>(6)(wide); }, {"[rms_norm]", "(8,)", "(6,)"});
  expect_shape_error([&] { TransformerBlock<double>(6, 2, rng)(wide); }, {"(2, 4, 8)"});
  expect_shape_error([&] { attend(wide); }, {"[MultiHeadAttention]", "x must be (batch, time, 6)", "got (2, 4, 8)"});
  expect_shape_error([&] { attend(flat); }, {"[MultiHeadAttention]", "x must be (batch, time, 6)", "got (4, 6)"});
  expect_shape_error([&] { attend(wide, fits, fits); }, {"[MultiHeadAttention]", "query", "got (2, 4, 8)"});
  expect_shape_error([&] { attend(fits, wide, fits); }, {"[MultiHeadAttention]", "key", "got (2, 4, 8)"});
  expect_shape_error([&] { attend(fits, fits, wide); }, {"[MultiHeadAttention]", "value", "got (2, 4, 8)"});
  expect_shape_error([&] { attend.with_weights(fits, fits, flat); }, {"[MultiHeadAttention]", "value", "got (4, 6)"});
  expect_shape_error([&] { attend(fits, of({2, 3, 6}), fits); }, {"[attention]", "v must be"});
  expect_shape_error([&] { LearnedPositions<double>(3, 6, rng)(fits); },
                     {"[LearnedPositions]", "time up to 3", "got (2, 4, 6)"});
}

TEST_F(BadInput, LayersWithSeveralWidthsNameTheOneThatDoesNotFit) {
  const MultiHeadAttention<double> attend(6, 2, rng, {.key_width = 5, .value_width = 4});
  const V x = of({2, 4, 6}), key = of({2, 3, 5}), value = of({2, 3, 4});
  EXPECT_NO_THROW(attend(x, key, value));
  expect_shape_error([&] { attend(x); }, {"[MultiHeadAttention]", "key must be (batch, time, 5)", "got (2, 4, 6)"});
  expect_shape_error([&] { attend(x, key, key); }, {"[MultiHeadAttention]", "value must be (batch, time, 4)"});
  const MultiHeadAttention<double> rotary(8, 2, rng, {.rope = RopeOptions{}});
  expect_shape_error(
      [&] {
        rotary(of({2, 4, 8}), {}, tape.integers(xt::xarray<int>{{1, 2}}));
      },
      {"[rope]", "positions must be (batch 2, time 4)", "got (1, 2)"});
  expect_shape_error([&] { SinusoidalPositions<double>(3, 6)(x); },
                     {"[SinusoidalPositions]", "time up to 3", "got (2, 4, 6)"});
  expect_shape_error(
      [&] {
        LearnedPositions<double>(4, 6, rng)(x, tape.integers(xt::xarray<int>{{1, 2}}));
      },
      {"[LearnedPositions]", "positions must be (batch 2, time 4)", "got (1, 2)"});
}

TEST_F(BadInput, AnEncoderDecoderNamesWhatIsWrongWithItsTokens) {
  EncoderDecoder<double> model({.source_vocabulary = 5, .target_vocabulary = 3, .length = 4, .width = 6, .heads = 2},
                               rng);
  const xt::xarray<int> source = {{0, 4}}, target = {{0, 2, 1}}, row = {0, 1}, long_row = {{0, 1, 2, 0, 1}};
  EXPECT_NO_THROW(model(tape, source, target));
  expect_shape_error([&] { model(tape, row, target); }, {"[EncoderDecoder]", "source must be (batch, time)", "(2,)"});
  expect_shape_error([&] { model(tape, source, row); }, {"[EncoderDecoder]", "target must be (batch, time)", "(2,)"});
  expect_shape_error([&] { model(tape, source, source); }, {"target_embedding", "[embedding]", "[0, 3)", "got 4"});
  expect_shape_error([&] { model(tape, long_row, target); }, {"[SinusoidalPositions]", "time up to 4", "(1, 5, 6)"});
  const xt::xarray<int> two = {{0, 1}, {0, 1}};
  expect_shape_error([&] { model(tape, two, target); }, {"multihead_attn", "[attention]", "k must be"});
  expect_shape_error(
      [&] {
        model(tape, source, target, tape.mask(ones_of<bool>({1, 3})));
      },
      {"encoder.layers.0.self_attn", "allow_keys", "got (1, 3)"});
}

TEST_F(BadInput, ALanguageModelNamesWhatIsWrongWithItsTokens) {
  TransformerLm<double> model({.vocabulary = 5, .length = 4, .width = 6, .heads = 2}, rng);
  const auto call = [&](auto tokens, Attend<double> attend = {}) {
    return [&, tokens, attend] { model(tape, tokens, attend); };
  };
  expect_shape_error(call(xt::xarray<int>{0, 1}), {"[TransformerLm]", "(batch, time)", "got (2,)"});
  expect_shape_error(call(xt::xarray<int>{{0, 1, 5}}), {"[embedding]", "[0, 5)", "got 5 at (0, 2)"});
  expect_shape_error(call(xt::xarray<int>{{0, 1, 2, 3, 4}}), {"[LearnedPositions]", "time up to 4", "(1, 5, 6)"});
  expect_shape_error(call(xt::xarray<int>{{0, 1}}, {.allow_keys = tape.mask(ones_of<bool>({1, 3}))}),
                     {"allow_keys", "(batch 1, time 2)", "got (1, 3)"});
}

TEST_F(BadInput, LeavesParametersAndGradientsAlone) {
  TransformerLm<double> model({.vocabulary = 5, .length = 4, .width = 6, .heads = 2}, rng);
  ParameterList<double> list = parameters<double>(model);
  std::vector<Array> before;
  for (const auto& [name, parameter] : list) before.push_back(parameter.value());
  EXPECT_THROW(model(tape, xt::xarray<int>{{0, 9}}), ShapeError);
  const auto logits = model(tape, xt::xarray<int>{{0, 1}});
  EXPECT_THROW(cross_entropy(logits, xt::xarray<int>{{0, 9}}), ShapeError);
  EXPECT_THROW(tape.backward(logits), ShapeError);
  EXPECT_THROW(tape.backward(logits, Array{1}), ShapeError);
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(Array(list[i].parameter.value()), before[i]) << list[i].name;
    EXPECT_FALSE(list[i].parameter.has_grad()) << list[i].name;
  }
}

}  // namespace
}  // namespace xtape::bad_input_test
