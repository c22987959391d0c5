// The ways to call the checker, and that it raises no false alarm.

#include <xtape/xtape.hpp>

#include "behaviour.hpp"
#include "snake.hpp"

namespace xtape::gradcheck_calls_test {

namespace {

std::vector<std::string> names(const GradcheckReport& report) {
  std::vector<std::string> result;
  for (const auto& tensor : report.tensors) result.push_back(tensor.name);
  return result;
}

TEST(GradcheckCalls, ALayerOfTheUsersOwn) {
  Rng rng(1);
  EXPECT_TRUE(gradcheck(SnakeMlp<double>(6, 8, rng), {{2, 3, 6}}));
  SnakeMlp<double> named(6, 8, rng);
  const auto report = gradcheck(named, {{2, 3, 6}});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(names(report), (std::vector<std::string>{"input 0", "up.weight", "up.bias", "down.weight", "down.bias"}));
}

TEST(GradcheckCalls, LambdasOfSeveralInputs) {
  EXPECT_TRUE(gradcheck([](Var<double> x) { return tanh(x); }, {{2, 3}}));
  EXPECT_TRUE(gradcheck([](Var<double> x, Var<double> y) { return x / (exp(y) + 1); }, {{2, 3}, {3}}));
  const auto report =
      gradcheck([](Var<double> x, Var<double> w, Var<double> b) { return linear(x, w, b); }, {{2, 3}, {4, 3}, {4}});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(names(report), (std::vector<std::string>{"input 0", "input 1", "input 2"}));
  EXPECT_EQ(report.tensors[1].checked, 12U);
}

TEST(GradcheckCalls, GenericLambdas) {
  EXPECT_TRUE(gradcheck([](auto x) { return tanh(x); }, {{2, 3}}));
  EXPECT_TRUE(gradcheck([](auto x, auto y) { return x * y; }, {{2, 3}, {3}}));
  EXPECT_TRUE(gradcheck([](const auto& x, const auto& y, const auto& z) { return x * y + z; }, {{2}, {2}, {2}}));
}

TEST(GradcheckCalls, TheTapeFirst) {
  EXPECT_TRUE(gradcheck(
      [](Tape<double>& tape, Var<double> x) {
        return x * tape.input(xt::xarray<double>{2, 3});
      },
      {{2}}));
  EXPECT_TRUE(gradcheck([](Tape<double>&, auto x, auto y) { return x - y; }, {{2}, {2}}));
  EXPECT_TRUE(gradcheck([](auto& tape, Var<double> x) { return x + tape.input(1.0); }, {{2}}));
}

TEST(GradcheckCalls, ParametersOfALambda) {
  const auto weight = parameter_of(random_array<double>({3, 2}, 1));
  const auto frozen = parameter_of(random_array<double>({3}, 2));
  const auto report = gradcheck([&](Var<double> x) { return linear(x, weight, frozen); }, {{4, 2}},
                                {.parameters = {{"weight", weight}, {"bias", frozen}}});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(names(report), (std::vector<std::string>{"input 0", "weight", "bias"}));

  // Nothing but parameters.
  const auto alone =
      gradcheck([&](Tape<double>& tape) { return tanh(tape.var(weight)); }, {}, {.parameters = {{"weight", weight}}});
  EXPECT_TRUE(alone) << alone;
  EXPECT_EQ(names(alone), std::vector<std::string>{"weight"});
}

TEST(GradcheckCalls, AFaultInAParameterIsNamed) {
  const auto weight = parameter_of(random_array<double>({3}, 1));
  const auto report = gradcheck([&](Var<double> x) { return x * x.tape().input(weight.value()); }, {{3}},
                                {.parameters = {{"weight", weight}}});
  EXPECT_FALSE(report);
  EXPECT_EQ(report.tensors[0].name, "weight");  // worst first
  EXPECT_EQ(report.tensors[0].reason, Reason::no_gradient);
  EXPECT_EQ(report.tensors[1].reason, Reason::ok);
}

TEST(GradcheckCalls, TokensAreNotInputs) {
  Rng rng(3);
  TransformerLm<double> model({.vocabulary = 5, .length = 3, .width = 4, .heads = 2, .layers = 1}, rng);
  auto list = parameters<double>(model);
  const auto report = gradcheck(
      [&](Tape<double>& tape) {
        return model(tape, xt::xarray<int>{{0, 1, 2}, {3, 4, 0}});
      },
      {}, {.parameters = list});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.tensors.size(), list.size());
}

TEST(GradcheckCalls, GivenInputs) {
  const auto report = gradcheck_at([](Var<double> x, Var<double> y) { return log(x) * y; },
                                   {xt::xarray<double>{{1, 2}, {3, 4}}, xt::xarray<double>{5, 6}});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.tensors[0].shape, (Shape{2, 2}));
  EXPECT_EQ(report.tensors[1].shape, (Shape{2}));
}

TEST(GradcheckCalls, ScalarsAndEmptyArrays) {
  const auto report = gradcheck(
      [](Var<double> x, Var<double> y) {
        return concat({y, reshape(exp(x), {1})}, 0);
      },
      {Shape{}, Shape{0}});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.tensors[0].checked, 1U);
  EXPECT_EQ(report.tensors[1].checked, 0U);
}

TEST(GradcheckCalls, TooManyOrTooFewInputsAreRefused) {
  expect_message<Error>([] { gradcheck([](Var<double> x) { return x; }, std::vector<Shape>(9, Shape{1})); },
                        {"[gradcheck]", "8", "9"});
  expect_message<Error>([] { gradcheck([](Var<double> x) { return x; }, {{1}, {1}}); }, {"[gradcheck]", "2 inputs"});
  expect_message<Error>([] { gradcheck([](Var<double> x, Var<double>) { return x; }, {{1}}); },
                        {"[gradcheck]", "1 input"});
}

TEST(GradcheckCalls, ParametersAreLeftAsTheyWere) {
  Rng rng(4);
  Linear<double> layer(3, 2, rng);
  const xt::xarray<double> before = values_of(layer.weight);
  EXPECT_TRUE(gradcheck(layer, {{4, 3}}));
  EXPECT_EQ(values_of(layer.weight), before);
}

TEST(GradcheckCalls, DropoutIsCheckedWithOneMask) {
  const auto report = gradcheck([](Var<double> x) { return dropout(exp(x), 0.5); }, {{4, 5}});
  EXPECT_TRUE(report) << report;
}

TEST(GradcheckCalls, NoFalseAlarmOverSeeds) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const auto passes = [&](const GradcheckReport& report) { EXPECT_TRUE(report) << report; };
    passes(gradcheck([](Var<double> x) { return gelu(x); }, {{4, 5}}, {.seed = seed}));
    passes(gradcheck([](Var<double> x) { return softmax(x); }, {{4, 5}}, {.seed = seed}));
    passes(gradcheck([](Var<double> x) { return log_softmax(x, 0); }, {{4, 5}}, {.seed = seed}));
    passes(gradcheck([](Var<double> x) { return layer_norm(x); }, {{4, 5}}, {.seed = seed}));
    passes(gradcheck([](Var<double> x, Var<double> y) { return x / y; }, {{4, 5}, {4, 5}}, {.seed = seed}));
    passes(gradcheck([](Var<double> x, Var<double> y) { return matmul(x, y); }, {{2, 3, 4}, {4, 5}}, {.seed = seed}));
    passes(
        gradcheck([](Var<double> q, Var<double> k, Var<double> v) { return attention(q, k, v, 2, {.causal = true}); },
                  {{1, 3, 4}, {1, 4, 4}, {1, 4, 4}}, {.seed = seed}));
    passes(gradcheck(
        [](Var<double> x) {
          return cross_entropy(x, xt::xarray<int>{0, 2, -100});
        },
        {{3, 4}}, {.seed = seed}));
    passes(gradcheck(LayerNorm<double>(5), {{2, 5}}, {.seed = seed}));
    passes(gradcheck(FeedForward<double>(4, 6, rng, {.activation = Activation::relu}), {{2, 3, 4}}, {.seed = seed}));
    passes(gradcheck(TransformerBlock<double>(4, 2, rng, {.hidden = 6}), {{1, 3, 4}}, {.seed = seed}));
  }
}

}  // namespace
}  // namespace xtape::gradcheck_calls_test
