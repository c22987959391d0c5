// Legal but unusual: arrays without elements, and numbers that are not finite. Results have the right shape, gradients
// of what an empty batch never touched are exactly 0, and nothing crashes.

#include <functional>

#include "support.hpp"

namespace xtape::empty_test {
namespace {

using Array = xt::xarray<double>;
using V = Var<double>;

class Empty : public testing::Test {
 protected:
  Tape<double> tape;
  Rng rng{1};
  V of(const Shape& shape) { return tape.input(random_array<double>(shape, 1), true); }
  /// Checks the shape and that backward leaves exact zeros in the gradients of x.
  void expect_result(V y, const Shape& shape, std::initializer_list<V> inputs) {
    EXPECT_EQ(y.shape(), shape) << y.op();
    for (double value : array(y)) EXPECT_EQ(value, 0) << y.op() << ": what sums over nothing is 0";
    tape.backward(y, Array(ones_of<double>(shape)));
    for (const V& x : inputs)
      for (double g : gradient(x)) EXPECT_EQ(g, 0) << y.op();
  }
};

TEST_F(Empty, ElementwiseOpsKeepTheShape) {
  for (const Shape& shape : {Shape{0}, Shape{0, 3}, Shape{2, 0, 3}}) {
    const V x = of(shape);
    for (const V& y : {-x, exp(x), log(x), tanh(x), relu(x), gelu(x), x + 1, x * x, 2 / x, x - of({}), dropout(x, 0.5)})
      expect_result(y, shape, {x});
  }
  const V row = of({3});
  expect_result(of({0, 3}) * row, {0, 3}, {row});
  expect_result(of({0, 3}) + row, {0, 3}, {row});
}

TEST_F(Empty, RowOpsKeepTheShape) {
  for (const Shape& shape : {Shape{0, 3}, Shape{2, 0}, Shape{2, 0, 3}}) {
    const V x = of(shape);
    expect_result(softmax(x), shape, {x});
    expect_result(log_softmax(x), shape, {x});
    expect_result(softmax(x, 0), shape, {x});
  }
  const V gain = of({3}), bias = of({3}), x = of({2, 0, 3});
  expect_result(layer_norm(x, gain, bias), {2, 0, 3}, {x, gain, bias});
}

TEST_F(Empty, SumsOverNothingAreZeroAndMeansAreRefused) {
  const V x = of({0, 3});
  expect_result(sum(x), {}, {x});
  expect_result(sum(x, {0}), {3}, {x});
  expect_result(sum(x, {1}, true), {0, 1}, {x});
  expect_result(mean(x, {1}), {0}, {x});
  expect_message<ShapeError>([&] { mean(x); }, {"[mean]", "at least one element", "(0, 3)"});
  expect_message<ShapeError>([&] { mean(x, {0}); }, {"[mean]", "(0, 3)"});
}

TEST_F(Empty, ProductsOverNothingAreZero) {
  for (const auto& [m, k, n] :
       {std::array<std::size_t, 3>{2, 0, 3}, {0, 2, 3}, {2, 3, 0}, {0, 2, 0}, {0, 0, 0}, {1, 0, 1}}) {
    const V a = of({m, k}), b = of({k, n}), stack = of({4, m, k}), weight = of({n, k});
    expect_result(matmul(a, b), {m, n}, {a, b});
    expect_result(matmul(stack, b), {4, m, n}, {stack, b});
    expect_result(linear(a, weight), {m, n}, {a, weight});
  }
  const V none = of({0, 2, 3}), b = of({3, 4}), weight = of({4, 3}), bias = of({4});
  expect_result(matmul(none, b), {0, 2, 4}, {none, b});
  expect_result(linear(none, weight, bias), {0, 2, 4}, {none, weight, bias});
  expect_result(matmul(of({0}), of({0})), {}, {});
}

TEST_F(Empty, ShapeOpsTakeAndGiveNothing) {
  const V x = of({2, 0, 3}), y = of({2, 3});
  expect_result(reshape(x, {0, 7}), {0, 7}, {x});
  expect_result(transpose(x), {3, 0, 2}, {x});
  expect_result(transpose(x, {1, 0, 2}), {0, 2, 3}, {x});
  expect_result(slice(y, 1, 2, 2), {2, 0}, {y});
  expect_result(slice(x, 0, 1, 2), {1, 0, 3}, {x});
  expect_result(concat({x, x}, 0), {4, 0, 3}, {x});
  const V joined = concat({slice(y, 0, 1, 1), y}, 0);
  EXPECT_EQ(array(joined), array(y)) << "an empty part adds nothing";
}

TEST_F(Empty, TablesAndLosses) {
  const V table = of({4, 3}), logits = of({0, 3});
  expect_result(embedding(table, zeros_of<int>({2, 0})), {2, 0, 3}, {table});
  expect_result(cross_entropy(logits, zeros_of<int>({0})), {}, {logits});
  const V ignored = of({2, 3});
  expect_result(cross_entropy(ignored, xt::xarray<int>{-100, -100}), {}, {ignored});
  const V no_classes = of({2, 0});
  expect_result(cross_entropy(no_classes, xt::xarray<int>{-100, -100}), {}, {no_classes});
}

TEST_F(Empty, AttentionOverNothing) {
  for (const auto& [batch, queries, keys] : {std::array<std::size_t, 3>{0, 2, 3}, {2, 0, 3}, {2, 3, 0}, {2, 0, 0}}) {
    const V q = of({batch, queries, 4}), k = of({batch, keys, 4}), v = of({batch, keys, 6});
    for (const bool causal : {false, true}) {
      expect_result(attention(q, k, v, 2, {.causal = causal}), {batch, queries, 6}, {q, k, v});
      const auto all = attention_with_weights(q, k, v, 2, {.causal = causal});
      EXPECT_EQ(all.weights.shape(), Shape({batch, 2, queries, keys}));
      expect_result(all.output, {batch, queries, 6}, {q, k, v});
    }
  }
  for (const Shape& shape : {Shape{0, 3, 12}, Shape{3, 0, 12}}) {
    const V qkv = of(shape);
    expect_result(attention_packed(qkv, 2), shape.with_back(4), {qkv});
  }
  const V q = of({1, 2, 4}), no_width = of({1, 2, 0});
  expect_result(attention(q, q, no_width, 2), {1, 2, 0}, {q});
}

TEST_F(Empty, AnEmptyBatchTrainsAModelByNothing) {
  TransformerLm<double> model({.vocabulary = 5, .length = 4, .width = 6, .heads = 2}, rng);
  ParameterList<double> list = parameters<double>(model);
  for (const auto& [batch, time] : {std::pair<std::size_t, std::size_t>{0, 3}, {2, 0}, {0, 0}}) {
    tape.clear();
    const xt::xarray<int> tokens = zeros_of<int>({batch, time});
    const auto logits = model(tape, tokens);
    EXPECT_EQ(logits.shape(), Shape({batch, time, 5}));
    const auto loss = cross_entropy(logits, tokens);
    EXPECT_EQ(loss.item(), 0);
    tape.backward(loss);
    for (auto& [name, parameter] : list)
      for (double g : Array(parameter.grad())) EXPECT_EQ(g, 0) << name;
  }
}

TEST_F(Empty, EveryLayerTakesAnEmptyBatch) {
  const V x = of({0, 3, 6});
  EXPECT_EQ(Linear<double>(6, 2, rng)(x).shape(), Shape({0, 3, 2}));
  EXPECT_EQ(LayerNorm<double>(6)(x).shape(), Shape({0, 3, 6}));
  EXPECT_EQ(Dropout(0.5)(x).shape(), Shape({0, 3, 6}));
  EXPECT_EQ(LearnedPositions<double>(4, 6, rng)(x).shape(), Shape({0, 3, 6}));
  EXPECT_EQ(FeedForward<double>(6, 12, rng)(x).shape(), Shape({0, 3, 6}));
  EXPECT_EQ(MultiHeadAttention<double>(6, 2, rng)(x).shape(), Shape({0, 3, 6}));
  EXPECT_EQ(MultiHeadAttention<double>(6, 2, rng)(x, x, x).shape(), Shape({0, 3, 6}));
  EXPECT_EQ(TransformerBlock<double>(6, 2, rng, {.norm = Norm::post})(x).shape(), Shape({0, 3, 6}));
  EXPECT_EQ(Embedding<double>(4, 6, rng)(tape, zeros_of<int>({0, 3})).shape(), Shape({0, 3, 6}));
}

/// Runs forward and backward of every op on the given matrix; returns how many results hold something that is not
/// finite.
int non_finite_results(Tape<double>& tape, const Array& numbers) {
  const V x = tape.input(numbers, true), batch = reshape(x, {1, 3, 3}), packed = reshape(x, {1, 3, 3});
  const xt::xarray<int> tokens{0, 2, 1};
  int count = 0;
  for (const V& y : {x + x,
                     x - x,
                     x * x,
                     x / x,
                     -x,
                     exp(x),
                     log(x),
                     tanh(x),
                     relu(x),
                     gelu(x),
                     sum(x),
                     sum(x, {0}),
                     mean(x, {1}),
                     matmul(x, x),
                     linear(x, x),
                     transpose(x),
                     slice(x, 0, 1, 3),
                     concat({x, x}, 1),
                     softmax(x),
                     softmax(x, 0),
                     log_softmax(x),
                     layer_norm(x),
                     embedding(x, tokens),
                     dropout(x, 0.5),
                     cross_entropy(x, tokens),
                     attention(batch, batch, batch, 1),
                     attention(batch, batch, batch, 1, {.causal = true}),
                     attention_packed(packed, 1),
                     attention_with_weights(batch, batch, batch, 3).weights}) {
    tape.backward(sum(y));
    const Array values = array(y);
    count += !std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); });
  }
  return count;
}

TEST(NonFinite, InfinityAndNanPassThroughEveryOpWithoutACrash) {
  Tape<double> tape;
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Array positive = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  EXPECT_EQ(non_finite_results(tape, positive), 0) << "the counter-check";
  for (double bad : {infinity, -infinity, nan, 1e308, -1e308}) {
    tape.clear();
    Array numbers = positive;
    numbers(1, 1) = bad;
    EXPECT_GT(non_finite_results(tape, numbers), 0) << bad << " must not vanish";
    numbers.fill(bad);
    EXPECT_GT(non_finite_results(tape, numbers), 0) << bad;
  }
}

}  // namespace
}  // namespace xtape::empty_test
