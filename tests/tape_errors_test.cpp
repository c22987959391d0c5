// Handles that do not, or no longer, name what they should: each is refused with a sentence that names the op.

#include <functional>
#include <memory>

#include "support.hpp"

namespace xtape::tape_errors_test {
namespace {

using Array = xt::xarray<double>;

static_assert(sizeof(Var<float>) == 16 && sizeof(Var<double>) == 16);
static_assert(std::is_trivially_copyable_v<Var<double>> && std::is_trivially_destructible_v<Var<double>>);
static_assert(std::is_trivially_copyable_v<Mask> && std::is_trivially_copyable_v<Integers>);

/// An op called with one bad operand beside good ones.
struct Call {
  const char* op;
  std::function<void(Var<double> bad)> call;
};

/// Every op with a bad handle in its only place.
std::vector<Call> calls_on_one() {
  using V = Var<double>;
  return {{"negate", [](V x) { -x; }},
          {"add", [](V x) { x + 1; }},
          {"divide", [](V x) { 1 / x; }},
          {"exp", [](V x) { exp(x); }},
          {"log", [](V x) { log(x); }},
          {"tanh", [](V x) { tanh(x); }},
          {"relu", [](V x) { relu(x); }},
          {"gelu", [](V x) { gelu(x); }},
          {"sum", [](V x) { sum(x); }},
          {"sum", [](V x) { sum(x, {0}); }},
          {"mean", [](V x) { mean(x); }},
          {"mean", [](V x) { mean(x, {0}); }},
          {"reshape", [](V x) { reshape(x, {1}); }},
          {"transpose", [](V x) { transpose(x); }},
          {"transpose",
           [](V x) {
             transpose(x, {1, 0});
           }},
          {"slice", [](V x) { slice(x, 0, 0, 1); }},
          {"concat",
           [](V x) {
             concat({x, x}, 0);
           }},
          {"softmax", [](V x) { softmax(x); }},
          {"log_softmax", [](V x) { log_softmax(x); }},
          {"layer_norm", [](V x) { layer_norm(x); }},
          {"dropout", [](V x) { dropout(x, 0.5); }},
          {"embedding", [](V x) { embedding(x, xt::xarray<int>{0}); }},
          {"cross_entropy", [](V x) { cross_entropy(x, xt::xarray<int>{0}); }},
          {"attention_packed", [](V x) { attention_packed(x, 1); }}};
}

/// Every op of several operands with a bad handle in each place.
std::vector<Call> calls_beside(Var<double> good) {
  using V = Var<double>;
  const V matrix = reshape(good, {3, 3}), row = slice(reshape(good, {9}), 0, 0, 3), batch = reshape(good, {1, 3, 3});
  return {{"add", [=](V x) { x + matrix; }},
          {"add", [=](V x) { matrix + x; }},
          {"subtract", [=](V x) { matrix - x; }},
          {"multiply", [=](V x) { matrix* x; }},
          {"divide", [=](V x) { matrix / x; }},
          {"matmul", [=](V x) { matmul(x, matrix); }},
          {"matmul", [=](V x) { matmul(matrix, x); }},
          {"linear", [=](V x) { linear(x, matrix, row); }},
          {"linear", [=](V x) { linear(matrix, x, row); }},
          {"linear", [=](V x) { linear(matrix, matrix, x); }},
          {"layer_norm", [=](V x) { layer_norm(x, row, row); }},
          {"layer_norm", [=](V x) { layer_norm(matrix, x, row); }},
          {"layer_norm", [=](V x) { layer_norm(matrix, row, x); }},
          {"concat",
           [=](V x) {
             concat({matrix, x}, 0);
           }},
          {"attention", [=](V x) { attention(x, batch, batch, 1); }},
          {"attention", [=](V x) { attention(batch, x, batch, 1); }},
          {"attention", [=](V x) { attention(batch, batch, x, 1); }},
          {"attention_with_weights", [=](V x) { attention_with_weights(x, batch, batch, 1); }},
          {"attention_with_weights", [=](V x) { attention_with_weights(batch, x, batch, 1); }},
          {"attention_with_weights", [=](V x) { attention_with_weights(batch, batch, x, 1); }}};
}

void expect_refusals(const std::vector<Call>& calls, Var<double> bad, const char* reason) {
  for (const Call& call : calls) {
    SCOPED_TRACE(call.op);
    expect_message<TapeError>([&] { call.call(bad); }, {("[" + std::string(call.op) + "]").c_str(), reason});
  }
}

class Handles : public testing::Test {
 protected:
  Tape<double> tape;
  Var<double> good() { return tape.input(random_array<double>({3, 3}, 1), true); }
};

TEST_F(Handles, OneThatNamesNothingIsRefusedByEveryOp) {
  expect_refusals(calls_on_one(), Var<double>(), "empty handle");
  expect_refusals(calls_beside(good()), Var<double>(), "empty handle");
  expect_message<TapeError>([] { Var<double>().shape(); }, {"empty handle"});
}

TEST_F(Handles, OneFromBeforeClearIsRefusedByEveryOp) {
  const auto stale = good();
  tape.clear();
  expect_refusals(calls_on_one(), stale, "before clear()");
  expect_refusals(calls_beside(good()), stale, "before clear()");
}

TEST_F(Handles, OneFromAScopeThatHasEndedIsRefusedByEveryOp) {
  Var<double> stale;
  {
    const auto scope = tape.scope();
    stale = good();
  }
  expect_refusals(calls_on_one(), stale, "scope that has ended");
  expect_refusals(calls_beside(good()), stale, "scope that has ended");
}

TEST_F(Handles, OneOfAnotherTapeIsRefusedByEveryOp) {
  Tape<double> other;
  const auto flat = other.input(random_array<double>({9}, 1));
  for (const Shape& shape : {Shape{3, 3}, Shape{3}, Shape{1, 3, 3}}) {
    const auto foreign = shape.size() == 9 ? reshape(flat, shape) : slice(flat, 0, 0, 3);
    expect_refusals(calls_beside(good()), foreign, "another tape");
  }
}

TEST_F(Handles, GoodOnesPassAllTheseCalls) {
  // The counter-check: the lists hold no call that fails for another reason.
  const auto matrix = good(), row = slice(reshape(matrix, {9}), 0, 0, 3), batch = reshape(matrix, {1, 3, 3});
  for (const Call& call : calls_beside(matrix)) {
    SCOPED_TRACE(call.op);
    int passed = 0;
    for (const auto& x : {matrix, row, batch}) {
      try {
        call.call(x);
        ++passed;
      } catch (const ShapeError&) {
      }
    }
    EXPECT_GT(passed, 0);
  }
  const auto one_row = tape.input(random_array<double>({1, 3}, 1)),
             one_batch = tape.input(random_array<double>({1, 1, 3}, 1));
  for (const Call& call : calls_on_one()) {
    SCOPED_TRACE(call.op);
    EXPECT_NO_THROW(call.call(std::string(call.op) == "attention_packed" ? one_batch
                              : std::string(call.op) == "reshape"        ? tape.input(1.0)
                                                                         : one_row));
  }
}

TEST_F(Handles, EveryQuestionToAStaleOneIsRefused) {
  const auto x = good();
  tape.clear();
  const std::vector<std::function<void()>> questions{
      [&] { x.shape(); },           [&] { x.value(); },   [&] { x.grad(); }, [&] { x.item(); },
      [&] { x.requires_grad(); },   [&] { x.op(); },      [&] { x.data(); }, [&] { tape.backward(x); },
      [&] { tape.retain_grad(x); }, [&] { tape.slot(x); }};
  for (const auto& question : questions) EXPECT_THROW(question(), TapeError);
  EXPECT_EQ(&x.tape(), &tape) << "its tape is still known";
}

TEST_F(Handles, OneOfADestroyedTapeIsRefusedByANewTapeInTheSamePlace) {
  alignas(Tape<double>) std::byte memory[sizeof(Tape<double>)];
  auto* const first = new (memory) Tape<double>;
  const auto old = first->input(1.0);
  std::destroy_at(first);
  auto* const second = new (memory) Tape<double>;
  const auto fresh = second->input(1.0);
  ASSERT_EQ(static_cast<void*>(second), static_cast<void*>(first));
  EXPECT_THROW(old.value(), TapeError);
  EXPECT_THROW(fresh + old, TapeError);
  EXPECT_EQ((fresh + fresh).item(), 2);
  std::destroy_at(second);
}

TEST_F(Handles, MasksAreCheckedLikeVars) {
  Tape<double> other;
  const auto allow = ones_of<bool>({1, 3});
  const Mask stale = tape.mask(allow), foreign = other.mask(allow);
  tape.clear();
  const auto x = reshape(good(), {1, 3, 3});
  for (const auto& [mask, reason] : {std::pair(stale, "before clear()"), {foreign, "another tape"}}) {
    expect_message<TapeError>([&, m = mask] { attention(x, x, x, 1, {.allow_keys = m}); }, {"[attention]", reason});
    expect_message<TapeError>([&, m = mask] { attention(x, x, x, 1, {.allow_queries = m}); }, {"[attention]", reason});
    expect_message<TapeError>([&, m = mask] { attention_packed(x, 1, {.allow_keys = m}); },
                              {"[attention_packed]", reason});
    expect_message<TapeError>([&, m = mask] { attention_with_weights(x, x, x, 1, {.allow_keys = m}); },
                              {"[attention_with_weights]", reason});
  }
  const Mask live = tape.mask(allow);
  EXPECT_NO_THROW(attention(x, x, x, 1, {.allow_keys = live, .allow_queries = live}));
}

TEST_F(Handles, TokensAreCheckedLikeVars) {
  Tape<double> other;
  const xt::xarray<int> numbers{0, 1, 2};
  const Integers stale = tape.integers(numbers), foreign = other.integers(numbers);
  tape.clear();
  const auto x = good();
  for (const auto& [tokens, reason] :
       {std::pair(stale, "before clear()"), {foreign, "another tape"}, {Integers{}, "empty handle"}}) {
    expect_message<TapeError>([&, i = tokens] { embedding(x, i); }, {"[embedding]", reason});
    expect_message<TapeError>([&, i = tokens] { cross_entropy(x, i); }, {"[cross_entropy]", reason});
    expect_message<TapeError>([&, i = tokens] { tape.integers(i); }, {"[integers]", reason});
  }
  const Integers live = tape.integers(numbers);
  EXPECT_NO_THROW(embedding(x, live));
  EXPECT_NO_THROW(cross_entropy(x, live));
}

TEST_F(Handles, AnOpenOutputIsClosedOnceAndByItsOwnName) {
  const auto x = good();
  const auto y = tape.output("mine", x.shape(), x);
  const auto nothing = [] {};
  expect_message<TapeError>([&] { tape.on_backward(x, nothing); }, {"[on_backward]", "[input]"});
  tape.on_backward(y, nothing);
  expect_message<TapeError>([&] { tape.on_backward(y, nothing); }, {"[on_backward]", "closed once", "[mine]"});
}

TEST_F(Handles, BackwardNeedsAScalarAndAGradient) {
  const auto x = good();
  expect_message<ShapeError>([&] { tape.backward(x); }, {"[backward]", "scalar", "(3, 3)"});
  expect_message<TapeError>([&] { tape.backward(tape.input(1.0)); }, {"[backward]", "[input]"});
  expect_message<ShapeError>([&] { tape.backward(x, Array{1, 2}); }, {"[backward]", "(3, 3)", "(2,)"});
  expect_message<ShapeError>([&] { sum(x, {0}).item(); }, {"[item]", "(3,)"});
  Tape<double> other;
  expect_message<TapeError>([&] { other.backward(sum(x)); }, {"[backward]", "another tape"});
  EXPECT_EQ(gradient(x), zeros_of<double>({3, 3})) << "refusals leave no gradient behind";
}

TEST_F(Handles, BackwardWithAnUpstreamGradientNamesItselfWhenTheHandleIsStale) {
  const auto x = good();
  tape.clear();
  expect_message<TapeError>([&] { tape.backward(x, Array{1}); }, {"[backward]", "before clear()"});
}

TEST_F(Handles, AnExceptionInACallbackLeavesTheTapeUsableAfterClear) {
  Parameter<double> w({3});
  const auto run = [&](bool fail) {
    const auto x = good() * w;
    const auto y = tape.output("fails", x.shape(), x);
    set_each(y, x, [](double v) { return v; });
    tape.on_backward(y, [x, y, fail] {
      if (fail) throw std::runtime_error("no");
      add_slope(x, y, [](double) { return 1.0; });
    });
    tape.backward(sum(y));
  };
  EXPECT_THROW(run(true), std::runtime_error);
  tape.clear();
  w.zero_grad();
  EXPECT_EQ(tape.memory().gradients.now, 0u);
  run(false);
  Array expected = xt::sum(random_array<double>({3, 3}, 1), {0});
  EXPECT_TRUE(near(w.grad(), expected, tolerance::two_paths_double));
}

}  // namespace
}  // namespace xtape::tape_errors_test
