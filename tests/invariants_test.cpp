// The invariants of the engine by number (framework/README.md). Nr 8 is held by allocation_test, 9 by the table of op
// cases, 10 by structure_test and 11 by thread_test.

#include <functional>

#include "support.hpp"

namespace xtape::invariants_test {
namespace {

using Array = xt::xarray<double>;

/// y = x, with a callback that writes its name into a journal.
Var<double> journalled(Var<double> x, int name, std::vector<int>& journal) {
  Var<double> y = x.tape().output("journalled", x.shape(), x);
  set_each(y, x, [](double v) { return v; });
  x.tape().on_backward(y, [x, y, name, to = &journal] {
    to->push_back(name);
    add_slope(x, y, [](double) { return 1.0; });
  });
  return y;
}

TEST(Invariant, Nr1BackwardRunsInTheReverseOrderOfRecording) {
  Tape<double> tape;
  std::vector<int> journal;
  const auto x = tape.input(1.0, true);
  const auto a = journalled(x, 1, journal), b = journalled(x, 2, journal), c = journalled(a, 3, journal);
  const auto unused = journalled(b, 4, journal);
  const auto d = journalled(b + c, 5, journal);
  tape.backward(d);
  EXPECT_EQ(journal, (std::vector<int>{5, 3, 2, 1})) << "an op whose result is not used is skipped";
  EXPECT_EQ(x.grad()(), 2);
  EXPECT_EQ(unused.item(), 1);
}

/// Keeps handles beside copies of their bits, to see whether anyone writes a value after its op has made it.
class Bits {
 public:
  Var<double> operator()(Var<double> x) {
    watched_.push_back(x);
    copies_.push_back(array(x));
    return x;
  }
  std::vector<std::string> changed() const {
    std::vector<std::string> ops;
    for (std::size_t i = 0; i < watched_.size(); ++i)
      if (array(watched_[i]) != copies_[i]) ops.push_back(watched_[i].op());
    return ops;
  }

 private:
  std::vector<Var<double>> watched_;
  std::vector<Array> copies_;
};

/// A transformer block and a loss, op by op, so that every value in between can be watched.
Var<double> watched_model(Tape<double>& tape, Bits& keep, Parameter<double>& table, TransformerBlock<double>& block,
                          const xt::xarray<int>& tokens) {
  const MultiHeadAttention<double>& self = block.self_attn;
  const Linear<double>&linear1 = block.feed_forward->linear1, &linear2 = block.feed_forward->linear2;
  const auto weight = [&](const Parameter<double>& p) { return keep(tape.var(p)); };
  const auto x = keep(dropout(keep(embedding(weight(table), tokens)), 0.2));
  const auto norm1 = keep(layer_norm(x, weight(block.norm1.weight), weight(block.norm1.bias)));
  const auto qkv = keep(linear(norm1, weight(self.in_proj_weight), weight(*self.in_proj_bias)));
  const auto packed = keep(attention_packed(qkv, 2, {.causal = true}));
  const auto mixed = attention_with_weights(packed, packed, x, 2);
  keep(mixed.output), keep(mixed.weights), keep(mixed.log_sum_exp);
  const auto projected = keep(linear(mixed.output, weight(self.out_proj.weight), weight(*self.out_proj.bias)));
  const auto y = keep(x + projected);
  const auto norm2 = keep(layer_norm(y, weight(block.norm2->weight), weight(block.norm2->bias)));
  const auto hidden = keep(linear_gelu(norm2, weight(linear1.weight), weight(*linear1.bias)));
  const auto z = keep(y + keep(linear(hidden, weight(linear2.weight), weight(*linear2.bias))));
  const auto logits = keep(matmul(keep(z * keep(tanh(z))), keep(transpose(weight(table)))));
  const auto parts = keep(concat({keep(slice(logits, 1, 0, 2)), keep(slice(logits, 1, 2, 4))}, 1));
  const auto probable = keep(log_softmax(keep(exp(keep(log(keep(softmax(parts))))))));
  const auto sums = keep(sum(keep(keep(relu(keep(-probable))) / 2 - probable), {0, 1}));
  return keep(keep(cross_entropy(parts, tokens)) + keep(mean(sums)));
}

TEST(Invariant, Nr2AValueIsWrittenOnceByTheOpThatMadeIt) {
  Rng rng(1);
  Parameter<double> table({7, 8}, Role::embedding);
  init_normal(table, 1, rng);
  TransformerBlock<double> block(8, 2, rng);
  ParameterList<double> list = parameters<double>(block);
  std::vector<Array> before;
  for (const auto& [name, parameter] : list) before.push_back(parameter.value());

  Tape<double> tape;
  Bits bits;
  const auto loss = watched_model(tape, bits, table, block, {{1, 2, 3, 0}, {6, 5, 4, 3}});
  EXPECT_EQ(bits.changed(), std::vector<std::string>{});
  tape.backward(loss);
  tape.backward(loss);
  EXPECT_EQ(bits.changed(), std::vector<std::string>{});
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(Array(list[i].parameter.value()), before[i]) << list[i].name;
    EXPECT_TRUE(list[i].parameter.has_grad()) << list[i].name << " took part";
  }
}

TEST(Invariant, Nr2IsSeenBrokenByAnOpThatWritesItsInput) {
  Tape<double> tape;
  Bits bits;
  const auto x = bits(tape.input(2.0));
  const auto y = tape.output("careless", x.shape(), x);
  *y.data() = (*x.data() *= 2);
  EXPECT_EQ(bits.changed(), std::vector<std::string>{"input"});
}

TEST(Invariant, Nr3ACallbackAddsAndOnlyIntoTheInputsThatWantAGradient) {
  Parameter<double> wanted({2, 2}), frozen({2, 2});
  Rng rng(1);
  init_normal(wanted, 1, rng), init_normal(frozen, 1, rng);
  frozen.freeze();
  const Array x = random_array<double>({3, 2}, 2), prefilled = random_array<double>({3, 2}, 3);
  Tape<double> tape;
  const auto learned = tape.input(x, true), constant = tape.input(x);
  tape.backward(sum(matmul(learned, wanted) * matmul(constant, frozen)));
  const Array plain = gradient(learned), plain_weight = wanted.grad();

  tape.clear();
  wanted.zero_grad();
  const auto again = tape.input(x, true);
  xt::noalias(again.grad()) += prefilled;
  wanted.grad().fill(5);
  tape.backward(sum(matmul(again, wanted) * matmul(tape.input(x), frozen)));
  EXPECT_TRUE(near(again.grad(), plain + prefilled, tolerance::two_paths_double));
  EXPECT_TRUE(near(wanted.grad(), plain_weight + 5.0, tolerance::two_paths_double));
  EXPECT_FALSE(frozen.has_grad());
  EXPECT_THROW(constant.grad(), TapeError);
}

template <class Callback>
concept IsACallback = requires(Tape<double>& tape, Var<double> y, Callback callback) {
  tape.on_backward(y, callback);
  tape.on_backward({y, y}, callback);
};

TEST(Invariant, Nr4ACallbackCapturesNothingWithADestructor) {
  const Var<double> x;
  double* const memory = nullptr;
  const auto plain = [x, memory, n = 3] { static_cast<void>(x), static_cast<void>(memory), static_cast<void>(n); };
  const auto container = [numbers = std::vector<double>(3)] { static_cast<void>(numbers); };
  const auto array_of_xtensor = [numbers = Array{1, 2}] { static_cast<void>(numbers); };
  static_assert(IsACallback<decltype(plain)>);
  static_assert(!IsACallback<decltype(container)>);
  static_assert(!IsACallback<decltype(array_of_xtensor)>);
  static_assert(!IsACallback<std::function<void()>>);
}

Var<double> without_backward(Var<double> x) {
  Var<double> y = x.tape().output("without_backward", x.shape(), x);
  set_each(y, x, [](double v) { return 2 * v; });
  return y;
}

TEST(Invariant, Nr5AnOpWithoutBackwardIsRefused) {
  Tape<double> tape;
  const auto x = tape.input(1.0, true);
  const auto y = without_backward(x);
  expect_message<TapeError>([&] { y * 2; }, {"[without_backward]", "on_backward", "got [multiply] next"});
  expect_message<TapeError>([&] { reshape(y, {1}); }, {"[without_backward]", "got [reshape] next"});
  expect_message<TapeError>([&] { tape.backward(y); }, {"[without_backward]", "on_backward", "backward()"});
  tape.clear();
  const auto z = tape.input(1.0, true);
  tape.backward(z * 2);
  EXPECT_EQ(z.grad()(), 2) << "after clear() the tape is as good as new";
}

TEST(Invariant, Nr5IsNoMatterWhereNoGradientIsWanted) {
  Tape<double> tape;
  EXPECT_EQ((without_backward(tape.input(1.0)) * 2).item(), 4);
  const auto x = tape.input(1.0, true);
  const auto guard = tape.no_grad();
  EXPECT_EQ((without_backward(x) * 2).item(), 4);
}

TEST(Invariant, Nr6EverythingOnATapeEndsAtClear) {
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2}, true);
  const auto y = x * x;
  tape.clear();
  EXPECT_EQ(tape.size(), 0u);
  expect_message<TapeError>([&] { x.value(); }, {"clear()"});
  const auto fresh = tape.input(Array{1, 2}, true);
  expect_message<TapeError>([&] { fresh* x; }, {"[multiply]", "clear()"});
  EXPECT_THROW(y.grad(), TapeError);
  EXPECT_EQ(fresh.value()(1), 2);
}

TEST(Invariant, Nr7AParameterWrittenBetweenForwardAndBackwardIsRefused) {
  Parameter<double> w({2});
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2}, true);
  const auto loss = sum(x * w);
  w.write()(0) = 3;
  expect_message<TapeError>([&] { tape.backward(loss); }, {"[backward]", "(2,)", "written"});
  EXPECT_FALSE(w.has_grad()) << "nothing is half done";
  tape.clear();
  const auto again = tape.input(Array{1, 2}, true);
  tape.backward(sum(again * w));
  EXPECT_EQ(gradient(again), (Array{3, 0}));
}

TEST(Invariant, Nr7HoldsForAFrozenParameterToo) {
  Parameter<double> w({2});
  w.freeze();
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2}, true);
  const auto loss = sum(x * reshape(tape.var(w), {2, 1}));
  w.write()(0) = 3;
  expect_message<TapeError>([&] { tape.backward(loss); }, {"[backward]", "written"});
}

TEST(Invariant, Nr7LetsBeWhatNoGradientDependsOn) {
  Parameter<double> w({2});
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2}, true);
  {
    const auto guard = tape.no_grad();
    sum(x * w);
  }
  w.write()(0) = 3;
  tape.backward(sum(x * x));
  EXPECT_EQ(gradient(x), (Array{2, 4}));
}

}  // namespace
}  // namespace xtape::invariants_test
