// Options and refusals of optimizers; their arithmetic stands in behaviour_optimizer_test and in the reference tests.

#include <limits>

#include "behaviour.hpp"

namespace xtape::optimizer_test {
namespace {

template <class T>
ParameterList<T> one_weight(T value, T gradient) {
  ParameterList<T> list;
  list.emplace_back("w", parameter_of(xt::xarray<T>{value}));
  list[0].parameter.grad()(0) = gradient;
  return list;
}

TEST(Optimizer, SgdMovesAgainstTheGradient) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = one_weight<T>(1, 2);
    Sgd<T> sgd(list, {.learning_rate = .25});
    sgd.step();
    EXPECT_EQ(list[0].parameter.value()(0), T(.5));
    EXPECT_TRUE(sgd.state().empty());
    EXPECT_EQ(sgd.steps(), 1U);
  });
}

TEST(Optimizer, MomentumSumsUp) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = one_weight<T>(1, 1);
    Sgd<T> sgd(list, {.learning_rate = .125, .momentum = .5});
    sgd.step(), sgd.step(), sgd.step();
    EXPECT_EQ(list[0].parameter.value()(0), T(1 - .125 * (1 + 1.5 + 1.75)));
    ASSERT_EQ(sgd.state().size(), 1U);
    EXPECT_EQ(sgd.state()[0].name, "momentum.w");
    EXPECT_EQ(sgd.state()[0].parameter.value()(0), T(1.75));
  });
}

TEST(Optimizer, NesterovLooksOneStepAhead) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = one_weight<T>(1, 1);
    Sgd<T> sgd(list, {.learning_rate = .125, .momentum = .5, .nesterov = true});
    sgd.step(), sgd.step();
    EXPECT_EQ(list[0].parameter.value()(0), T(1 - .125 * ((1 + .5 * 1) + (1 + .5 * 1.5))));
    EXPECT_EQ(sgd.state()[0].parameter.value()(0), T(1.5));
  });
}

TEST(Optimizer, AdamAddsItsDecayToTheGradient) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = one_weight<T>(1, 0);
    Adam<T> adam(list, {.learning_rate = .1, .weight_decay = .1});
    adam.step();
    EXPECT_NEAR(list[0].parameter.value()(0), .9, tolerance::behaviour<T>);  // .99 if decoupled
    EXPECT_NEAR(adam.state()[0].parameter.value()(0), .01, tolerance::behaviour<T>);
  });
}

TEST(Optimizer, SgdAddsItsDecayToTheGradientOfWeightsAlone) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    for (const Role role : {Role::weight, Role::bias, Role::gain, Role::embedding}) {
      ParameterList<T> list;
      list.emplace_back("p", parameter_of(xt::xarray<T>{4}, role));
      list[0].parameter.grad()(0) = 1;
      Sgd<T> sgd(list, {.learning_rate = .5, .weight_decay = .25});
      sgd.step();
      EXPECT_EQ(list[0].parameter.value()(0), role == Role::weight ? T(4 - .5 * 2) : T(4 - .5)) << to_string(role);
    }
  });
}

TEST(Optimizer, TheStateIsNamedAfterTheParameters) {
  Rng rng(1);
  Linear<float> layer(2, 3, rng);
  AdamW<float> adamw(parameters<float>(layer));
  std::vector<std::string> names;
  for (const auto& entry : adamw.state()) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{"exp_avg.weight", "exp_avg_sq.weight", "step.weight", "exp_avg.bias",
                                             "exp_avg_sq.bias", "step.bias"}));
  EXPECT_EQ(adamw.state()[0].parameter.shape(), (Shape{3, 2}));
}

TEST(Optimizer, FrozenParametersStayWhereTheyAre) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = one_weight<T>(1, 1);
    list[0].parameter.freeze();
    AdamW<T> adamw(list, {.learning_rate = .1, .weight_decay = .1});
    Sgd<T> sgd(list, {.learning_rate = .1});
    adamw.step(), sgd.step();
    EXPECT_EQ(list[0].parameter.value()(0), T(1));
    list[0].parameter.freeze(false);
    sgd.step();
    EXPECT_LT(list[0].parameter.value()(0), T(1));
  });
}

TEST(Optimizer, ASetRateTakesEffectAtTheNextStep) {
  auto list = one_weight<double>(1, 1);
  Sgd<double> sgd(list, {.learning_rate = 0});
  sgd.step();
  EXPECT_EQ(list[0].parameter.value()(0), 1);  // a rate of 0 is allowed and moves nothing
  sgd.set_learning_rate(.5);
  sgd.step();
  EXPECT_EQ(list[0].parameter.value()(0), .5);
  EXPECT_EQ(sgd.learning_rate(), .5);
}

TEST(Optimizer, AStepDoesNotForgetTheGradients) {
  auto list = one_weight<float>(1, 2);
  Sgd<float> sgd(list, {.learning_rate = .1});
  sgd.step();
  EXPECT_EQ(list[0].parameter.grad()(0), 2.0F);
  sgd.zero_grad();
  EXPECT_FALSE(list[0].parameter.has_grad());
}

TEST(Optimizer, ParametersOfSizeZeroAreNoTrouble) {
  ParameterList<float> list;
  list.emplace_back("empty", Parameter<float>(Shape{0}));
  list[0].parameter.grad();
  AdamW<float> adamw(list);
  adamw.step();
  EXPECT_EQ(clip_grad_norm(list, 1), 0.0);
  ParameterList<float> nothing;
  AdamW<float> idle(nothing);
  idle.step();
  EXPECT_EQ(idle.steps(), 1U);
}

TEST(Optimizer, OutOfRangeOptionsAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const auto adamw = [](AdamWOptions options) { return [options] { AdamW<float>({}, options); }; };
  const auto adam = [](AdamOptions options) { return [options] { Adam<float>({}, options); }; };
  const auto sgd = [](SgdOptions options) { return [options] { Sgd<float>({}, options); }; };
  for (const double bad : {-1.0, nan, infinity}) {
    expect_message<Error>(adamw({.learning_rate = bad}), {"learning rate"});
    expect_message<Error>(adamw({.weight_decay = bad}), {"weight decay"});
    expect_message<Error>(sgd({.learning_rate = bad}), {"learning rate"});
    expect_message<Error>(sgd({.weight_decay = bad}), {"weight decay"});
    Sgd<float> running({}, {});
    expect_message<Error>([&] { running.set_learning_rate(bad); }, {"learning rate"});
    EXPECT_EQ(running.learning_rate(), SgdOptions{}.learning_rate);
  }
  for (const double bad : {-.1, 1.0, nan}) {
    expect_message<Error>(adamw({.betas = {bad, .9}}), {"[AdamW]", "betas", "[0, 1)"});
    expect_message<Error>(adamw({.betas = {.9, bad}}), {"[AdamW]", "betas", "[0, 1)"});
    expect_message<Error>(sgd({.momentum = bad}), {"[Sgd]", "momentum", "[0, 1)"});
  }
  for (const double bad : {0.0, -1e-8, nan}) {
    expect_message<Error>(adamw({.eps = bad}), {"[AdamW]", "eps", "positive"});
    expect_message<Error>(adam({.eps = bad}), {"[Adam]", "eps", "positive"});
  }
  expect_message<Error>(adam({.betas = {1, .9}}), {"[Adam]", "betas"});
  expect_message<Error>(sgd({.nesterov = true}), {"[Sgd]", "nesterov", "momentum"});
}

TEST(Optimizer, BitsDoNotDependOnTheNumberOfThreads) {
  const int before = threads();
  const auto run = [](int count) {
    set_threads(count);
    ParameterList<float> list;
    list.emplace_back("w", parameter_of(random_array<float>({100'003}, 1)));
    AdamW<float> adamw(list, {.learning_rate = .1});
    for (std::uint64_t step = 0; step < 3; ++step) {
      const xt::xarray<float> gradient = random_array<float>({100'003}, step + 2, 10);
      std::copy(gradient.begin(), gradient.end(), list[0].parameter.grad_data());
      if (step == 0) clip_grad_norm(list, 1);
      adamw.step({.max_norm = .5});
    }
    return values_of(list[0].parameter);
  };
  const xt::xarray<float> one = run(1);
  for (const int count : {2, 3}) EXPECT_EQ(run(count), one) << count;
  set_threads(before);
}

TEST(Optimizer, AStepThatClipsIsAClippedStepButKeepsTheGradients) {
  const auto changed_by = [](auto optimizer_of, bool within) {
    ParameterList<double> list;
    list.emplace_back("large", parameter_of(random_array<double>({9'001}, 1)));
    list.emplace_back("small", parameter_of(random_array<double>({3}, 2)));
    auto optimizer = optimizer_of(list);
    std::vector<double> norms;
    for (const double scale : {10., .001, 1.}) {  // the second needs no clipping
      for (auto& entry : list) {
        const xt::xarray<double> g = scale * random_array<double>(entry.parameter.shape(), 3);
        std::copy(g.begin(), g.end(), entry.parameter.grad_data());
        norms.push_back(g(0));
      }
      if (!within) norms.push_back(clip_grad_norm(list, 1));
      const double norm = within ? optimizer.step({.max_norm = 1}) : optimizer.step();
      if (within) norms.push_back(norm);
      if (within) {
        for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(list[i].parameter.grad()(0), norms[norms.size() - 3 + i]);
      }
    }
    EXPECT_GT(norms[2], 100);
    return std::tuple(norms, values_of(list[0].parameter), values_of(list[1].parameter));
  };
  const auto agree = [&](auto optimizer_of) {
    const auto [norms, large, small] = changed_by(optimizer_of, false);
    const auto [norms_within, large_within, small_within] = changed_by(optimizer_of, true);
    EXPECT_EQ(norms, norms_within);
    EXPECT_LE(error_between(large_within, large), 1e-14);
    EXPECT_LE(error_between(small_within, small), 1e-14);
  };
  agree([](auto list) { return Sgd<double>(list, {.momentum = .9, .weight_decay = .1}); });
  agree([](auto list) { return Adam<double>(list, {.learning_rate = .1, .weight_decay = .1}); });
  agree([](auto list) { return AdamW<double>(list, {.learning_rate = .1}); });
}

TEST(Optimizer, ANormThatIsKnownIsTaken) {
  auto list = one_weight<double>(1, 4);
  Sgd<double> sgd(list, {.learning_rate = .5});
  EXPECT_EQ(sgd.step({.max_norm = 2 + 1e-6, .norm = 8}), 8.0);  // not that of the gradient, so that it is seen
  EXPECT_NEAR(list[0].parameter.value()(0), 1 - .5 * 4 * .25, 1e-6);
  for (const double bad : {-1.0, std::nan("")})
    expect_message<Error>([&] { sgd.step({.max_norm = bad}); }, {"[Sgd]", "max_norm", "negative"});
  expect_message<Error>([&] { sgd.step({.max_norm = 1, .norm = -1}); }, {"[Sgd]", "norm", "negative"});
  expect_message<Error>([&] { sgd.step({.max_norm = 1, .norm = NAN}); }, {"[Sgd]", "norm", "NaN"});
  EXPECT_EQ(sgd.step({.max_norm = 0}), 4.0);
  EXPECT_NEAR(list[0].parameter.value()(0), .5, 1e-6);
  EXPECT_EQ(sgd.steps(), 2U);
}

TEST(Optimizer, AFrozenParametersOldGradientStopsNothing) {
  Parameter<double> moving({2}), frozen({2});
  moving.grad().fill(1);
  frozen.grad().fill(std::numeric_limits<double>::quiet_NaN());
  ParameterList<double> list;
  list.emplace_back("moving", moving);
  list.emplace_back("frozen", frozen);
  AdamW<double> optimizer(list);
  EXPECT_THROW(optimizer.step(), Error);
  frozen.freeze();
  EXPECT_NEAR(clip_grad_norm(list, 10.0), std::sqrt(2.0), tolerance::behaviour_double);
  optimizer.step();
  EXPECT_LT(moving.data()[0], 0.0);
  EXPECT_EQ(frozen.data()[0], 0.0);
}

TEST(Optimizer, TakesListsAsTheyAreMade) {
  Rng rng(1);
  Linear<float> layer(2, 2, rng);
  zero_grad(parameters<float>(layer));
  EXPECT_EQ(clip_grad_norm(parameters<float>(layer), 1.0), 0.0);
}

}  // namespace
}  // namespace xtape::optimizer_test
