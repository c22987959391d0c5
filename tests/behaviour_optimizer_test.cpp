// Decay, clipping and the state of optimizers (cases O27, O28 and O30).

#include <limits>

#include "behaviour.hpp"
#include "files.hpp"

namespace xtape::behaviour_optimizer_test {
namespace {

template <class T>
void set_grad(Parameter<T>& parameter, std::initializer_list<double> values) {
  std::copy(values.begin(), values.end(), parameter.grad_data());
}

/// A list of one parameter for each role, each the number 1.
template <class T>
ParameterList<T> one_of_each_role() {
  ParameterList<T> list;
  for (const Role role : {Role::weight, Role::bias, Role::gain, Role::embedding})
    list.emplace_back(to_string(role), parameter_of(xt::xarray<T>{1}, role));
  return list;
}

TEST(Behaviour, O27_AdamWDecaysWeightsAlone) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = one_of_each_role<T>();
    for (auto& entry : list) set_grad(entry.parameter, {0});
    AdamW<T> optimizer(list, {.learning_rate = .1, .weight_decay = .1});
    EXPECT_EQ(optimizer.decaying(), std::vector<std::string>{"weight"});
    optimizer.step();
    EXPECT_NEAR(list[0].parameter.value()(0), .99, tolerance::two_paths<T>);
    for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(list[i].parameter.value()(0), T(1)) << list[i].name;
  });
}

TEST(Behaviour, O27_DecayIsDecoupledFromTheGradient) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = one_of_each_role<T>();
    set_grad(list[0].parameter, {.5});
    AdamW<T> optimizer(list, {.learning_rate = .1, .weight_decay = .1});
    optimizer.step();
    EXPECT_NEAR(list[0].parameter.value()(0), .890000002,
                tolerance::behaviour_double);  // .9 if it were folded into the gradient
  });
}

TEST(Behaviour, O27_DecayOfEverythingOnRequest) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = one_of_each_role<T>();
    for (auto& entry : list) set_grad(entry.parameter, {0});
    AdamW<T> optimizer(list, {.learning_rate = .1, .weight_decay = .1, .decay = Decay::all});
    EXPECT_EQ(optimizer.decaying(), (std::vector<std::string>{"weight", "bias", "gain", "embedding"}));
    optimizer.step();
    for (auto& entry : list) EXPECT_NEAR(entry.parameter.value()(0), .99, tolerance::two_paths<T>) << entry.name;
  });
}

TEST(Behaviour, O27_AParameterWithoutAGradientIsSkipped) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = one_of_each_role<T>();
    AdamW<T> adamw(list, {.learning_rate = .1, .weight_decay = .1});
    Sgd<T> sgd(list, {.learning_rate = .1, .momentum = .9, .weight_decay = .1});
    adamw.step(), sgd.step();
    for (auto& entry : list) EXPECT_EQ(entry.parameter.value()(0), T(1)) << entry.name;
  });
}

/// Two parameters "a" and "b" with the gradients of one element each.
template <class T>
ParameterList<T> with_gradients(T a, T b) {
  ParameterList<T> list;
  list.emplace_back("a", parameter_of(xt::xarray<T>{1}));
  list.emplace_back("b", parameter_of(xt::xarray<T>{2}));
  list[0].parameter.grad()(0) = a;
  list[1].parameter.grad()(0) = b;
  return list;
}

TEST(Behaviour, O28_Clipping) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = with_gradients<T>(3, 4);
    EXPECT_EQ(clip_grad_norm(list, 1), 5.0);
    EXPECT_NEAR(list[0].parameter.grad()(0), .6, tolerance::behaviour_double);
    EXPECT_NEAR(list[1].parameter.grad()(0), .8, tolerance::behaviour_double);
  });
}

TEST(Behaviour, O28_OneBadElementIsReportedAndRefused) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
    for (const T bad : {inf, -inf, nan}) {
      auto list = with_gradients<T>(1, bad);
      AdamW<T> adamw(list);
      Adam<T> adam(list);
      Sgd<T> sgd(list, {.momentum = .9});
      EXPECT_FALSE(std::isfinite(clip_grad_norm(list, 1)));
      EXPECT_EQ(list[0].parameter.grad()(0), T(1));
      const T left = list[1].parameter.grad()(0);
      EXPECT_TRUE(std::isnan(bad) ? std::isnan(left) : left == bad);

      expect_message<Error>([&] { adamw.step(); }, {"[AdamW]", "finite", "gradient of b"});
      expect_message<Error>([&] { adam.step(); }, {"[Adam]", "finite", "gradient of b"});
      expect_message<Error>([&] { sgd.step(); }, {"[Sgd]", "finite", "gradient of b"});
      EXPECT_EQ(list[0].parameter.value()(0), T(1));
      EXPECT_EQ(list[1].parameter.value()(0), T(2));
      EXPECT_EQ(adamw.steps(), 0U);
      EXPECT_EQ(sgd.steps(), 0U);
      for (auto* state : {&adamw.state(), &adam.state(), &sgd.state()})
        for (auto& entry : *state) EXPECT_EQ(entry.parameter.data()[0], T(0)) << entry.name;
    }
  });
}

// Adam would remember an infinite square for ever and never move the parameter again.
TEST(Behaviour, O28_AGradientWhoseSquareIsInfiniteIsRefused) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const T large = sizeof(T) == 4 ? T(1e20) : T(1e200);
    auto list = with_gradients<T>(1, large);
    AdamW<T> adamw(list);
    expect_message<Error>([&] { adamw.step(); }, {"[AdamW]", "gradient of b", "squares"});
    EXPECT_EQ(list[0].parameter.value()(0), T(1));
    list[1].parameter.grad()(0) = std::sqrt(large);
    adamw.step();
    EXPECT_LT(list[1].parameter.value()(0), T(2));
  });
}

TEST(Behaviour, O28_SmallGradientsKeepTheirBits) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const T a = T(1) / T(3), b = T(1) / T(7);
    auto list = with_gradients<T>(a, b);
    const double norm = clip_grad_norm(list, 1);
    EXPECT_NEAR(norm, std::sqrt(1.0 / 9 + 1.0 / 49), tolerance::behaviour_double);
    clip_grad_norm(list, std::numeric_limits<double>::infinity());
    EXPECT_EQ(list[0].parameter.grad()(0), a);
    EXPECT_EQ(list[1].parameter.grad()(0), b);
  });
}

TEST(Behaviour, O28_ZeroNegativeAndEmpty) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    ParameterList<T> nothing;
    EXPECT_EQ(clip_grad_norm(nothing, 1), 0.0);
    auto list = with_gradients<T>(3, 4);
    for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN()})
      expect_message<Error>([&] { clip_grad_norm(list, bad); }, {"[clip_grad_norm]", "negative"});
    EXPECT_EQ(list[0].parameter.grad()(0), T(3));
    EXPECT_EQ(clip_grad_norm(list, 0), 5.0);
    EXPECT_EQ(list[0].parameter.grad()(0), T(0));
    EXPECT_EQ(list[1].parameter.grad()(0), T(0));

    zero_grad(list);  // without gradients there is nothing to measure, and none comes into being
    EXPECT_EQ(clip_grad_norm(list, 1), 0.0);
    EXPECT_FALSE(list[0].parameter.has_grad());
  });
}

constexpr double gradients[] = {1, -2, 3, .5, -1, 2};

/// AdamW on one weight that starts at 1.
template <class T>
struct Training {
  Parameter<T> weight = parameter_of(xt::xarray<T>{1});
  ParameterList<T> list{{"w", weight}};
  AdamW<T> optimizer{list, {.learning_rate = .1, .weight_decay = 0}};

  void steps(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      weight.grad()(0) = static_cast<T>(gradients[i]);
      optimizer.step();
    }
  }
  T value() { return weight.value()(0); }
  T moment(std::size_t i) { return optimizer.state()[i].parameter.value()(0); }
};

TEST(Behaviour, O30_ResumeRestoresTheStepCount) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Training<T> right;
    right.steps(0, 2);
    EXPECT_NEAR(right.value(), .9366103535, tolerance::behaviour<T>);
    EXPECT_NEAR(right.moment(0), -.11, tolerance::behaviour<T>);
    EXPECT_NEAR(right.moment(1), .004999, tolerance::behaviour<T>);
    right.steps(2, 3);
    EXPECT_NEAR(right.value(), .9022862456, tolerance::behaviour<T>);

    Training<T> reset;
    reset.steps(0, 2);
    reset.optimizer.state()[2].parameter.write()() = 0;
    reset.steps(2, 3);
    EXPECT_NEAR(reset.value(), .8828793309, tolerance::behaviour<T>);

    Training<T> lost;
    lost.steps(0, 2);
    for (auto& entry : lost.optimizer.state()) fill(entry.parameter, T(0));
    lost.steps(2, 3);
    EXPECT_NEAR(lost.value(), .8366103538, tolerance::behaviour<T>);
  });
}

TEST(Behaviour, O30_EachParameterCountsItsOwnSteps) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Parameter<T> early = parameter_of(xt::xarray<T>{1}), late = parameter_of(xt::xarray<T>{1});
    const ParameterList<T> list{{"early", early}, {"late", late}};
    AdamW<T> optimizer(list, {.learning_rate = .1, .weight_decay = 0});
    for (const double g : {1., -2.}) {
      early.grad()(0) = static_cast<T>(g);
      optimizer.step();
    }
    EXPECT_NEAR(early.value()(0), .9366103535, tolerance::behaviour<T>);
    EXPECT_EQ(late.value()(0), T(1));
    early.grad()(0) = 3, late.grad()(0) = 1;
    optimizer.step();
    EXPECT_NEAR(early.value()(0), .9022862456, tolerance::behaviour<T>);
    EXPECT_NEAR(late.value()(0), .9, tolerance::behaviour<T>);  // a first step, however late, moves by the rate
    EXPECT_EQ(optimizer.state()[2].parameter.value()(), T(3));
    EXPECT_EQ(optimizer.state()[5].name, "step.late");
    EXPECT_EQ(optimizer.state()[5].parameter.value()(), T(1));
    EXPECT_EQ(optimizer.steps(), 3U);
  });
}

TEST(Behaviour, O30_AResumeFromAnyStepHasTheSameBits) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Training<T> whole;
    whole.steps(0, 6);
    const TemporaryFolder folder;
    const auto weights = folder / "weights.safetensors", moments = folder / "moments.safetensors";
    for (std::size_t stop = 0; stop <= 6; ++stop) {
      Training<T> before, after;
      before.steps(0, stop);
      save_safetensors(weights, before.list);
      save_safetensors(moments, before.optimizer.state());

      load_safetensors(weights, after.list);
      load_safetensors(moments, after.optimizer.state());
      after.steps(stop, 6);
      EXPECT_EQ(after.value(), whole.value()) << stop;
      EXPECT_EQ(after.moment(0), whole.moment(0)) << stop;
      EXPECT_EQ(after.moment(1), whole.moment(1)) << stop;
    }
  });
}

}  // namespace
}  // namespace xtape::behaviour_optimizer_test
