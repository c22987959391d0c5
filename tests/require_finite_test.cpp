// The guard between backward and step: what it names, what it passes, and that it changes nothing.

#include <limits>

#include "behaviour.hpp"

namespace xtape::require_finite_test {
namespace {

/// The square root, whose slope at 0 is infinite.
template <class T>
Var<T> root(Var<T> x) {
  const Var<T> y = x.tape().output("root", x.shape(), x);
  set_each(y, x, [](T v) { return std::sqrt(v); });
  x.tape().on_backward(y, [x, y] { add_slope(x, y, [](T v) { return 1 / (2 * std::sqrt(v)); }); });
  return y;
}

/// exp, or whatever f does, as a layer with a place in the model.
template <class F>
struct Named {
  F f;
  LayerName name;
  template <class T>
  Var<T> operator()(Var<T> x) const {
    const auto here = name.enter();
    return f(x);
  }
  void visit(auto&&) {}
};

/// linear -> f -> head, so that the values of the middle can be made to overflow.
template <class T, class F>
struct Model {
  Linear<T> linear;
  Named<F> middle;
  Linear<T> head;
  Model(F f, Rng& rng) : linear(3, 2, rng), middle{f, {}}, head(2, 1, rng) { name_layers(*this); }
  Var<T> operator()(Var<T> x) const { return head(middle(linear(x))); }
  void visit(auto&& f) { f("linear", linear), f("middle", middle), f("head", head); }
};

template <class T>
std::vector<xt::xarray<T>> values_and_gradients(const ParameterList<T>& list) {
  std::vector<xt::xarray<T>> result;
  for (const auto& entry : list) {
    result.push_back(values_of(entry.parameter));
    if (entry.parameter.has_grad()) result.emplace_back(entry.parameter.share().grad());
  }
  return result;
}
template <class T>
bool same_bits(const std::vector<xt::xarray<T>>& x, const std::vector<xt::xarray<T>>& y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& a, const auto& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
  });
}

/// The message, and that parameters and gradients have kept their bits.
template <class T>
std::string message(Var<T> loss, const ParameterList<T>& list) {
  const auto before = values_and_gradients(list);
  const std::string text = message_of<Error>([&] { require_finite(loss, list); });
  EXPECT_TRUE(same_bits(values_and_gradients(list), before));
  return text;
}

template <class T>
constexpr T inf = std::numeric_limits<T>::infinity();
template <class T>
constexpr T nan_of = std::numeric_limits<T>::quiet_NaN();

TEST(RequireFinite, NamesTheOpTheLayerThePlaceAndTheStep) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Rng rng(1);
    Model<T, Var<T> (*)(Var<T>)> model(exp<T>, rng);
    fill(model.linear.weight, T(0));
    model.linear.weight.write()(1, 2) = 1;
    const auto list = parameters<T>(model);
    AdamW<T> optimizer(list);
    Tape<T> tape;
    xt::xarray<T> x = zeros_of<T>({4, 3});
    x(3, 2) = T(1e4);  // exp(1e4) is infinite, and everything after it
    for (std::uint64_t step = 0; step < 2; ++step) {
      tape.clear();
      tape.set_step(40 + step);
      optimizer.zero_grad();
      const Var<T> loss = mean(model(tape.input(step == 0 ? xt::xarray<T>(x / T(1e4)) : x)));
      tape.backward(loss);
      if (step == 0) {
        require_finite(loss, list);
      } else {
        EXPECT_EQ(message(loss, list),
                  fmt::format("[require_finite] expected a finite loss in step 41, got {}; the first is inf at (3, 1) "
                              "of [exp] (4, 2) in layer middle, whose inputs are finite",
                              loss.item() > 0 ? "inf" : "-inf"));
      }
    }
  });
}

TEST(RequireFinite, NamesAnInputOrAParameterThatIsNotFinite) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Rng rng(1);
    Model<T, Var<T> (*)(Var<T>)> model(tanh<T>, rng);
    const auto list = parameters<T>(model);
    Tape<T> tape;
    xt::xarray<T> x = random_array<T>({4, 3}, 1);
    x(2, 1) = nan_of<T>;
    Var<T> loss = mean(model(tape.input(x)));
    tape.backward(loss);
    EXPECT_NE(
        message(loss, list).find("step 0, got NaN; the first is NaN at (2, 1) of [input] (4, 3), which was given so"),
        std::string::npos);

    tape.clear();
    model.head.weight.write()(0, 1) = inf<T>;
    loss = mean(model(tape.input(random_array<T>({4, 3}, 1))));
    tape.backward(loss);
    const std::string text = message(loss, list);
    EXPECT_NE(text.find("the first is inf at (0, 1) of the parameter head.weight (1, 2), which was given so"),
              std::string::npos)
        << text;
  });
}

TEST(RequireFinite, WhatDidNotLeadToTheLossDoesNotCount) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    ParameterList<T> list{{"w", parameter_of(xt::xarray<T>{1, 2, 3})}};
    const Var<T> hidden = tape.input(xt::xarray<T>{0, -inf<T>, 0}), w = tape.var(list[0].parameter);
    log(tape.input(xt::xarray<T>{0, -1}));  // -inf and NaN that nobody uses
    Var<T> loss = sum(softmax(w + hidden) * w);
    tape.backward(loss);
    require_finite(loss, list);  // the mask is no fault

    zero_grad(list);
    loss = loss + sum(exp(w * 1000));
    tape.backward(loss);
    const std::string text = message(loss, list);
    EXPECT_NE(text.find("the first is inf at (0,) of [exp] (3,), whose inputs are finite"), std::string::npos) << text;
  });
}

TEST(RequireFinite, AFullyHiddenRowOfAttentionIsNoFault) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    ParameterList<T> list{{"q", parameter_of(random_array<T>({1, 3, 4}, 1))}};
    const Var<T> q = tape.var(list[0].parameter);
    const xt::xarray<bool> nothing = {{false, false, false}};
    const auto result = attention_with_weights<T>(q, q, q, 2, {.allow_keys = tape.mask(nothing)});
    EXPECT_FALSE(all_finite(array(result.log_sum_exp)));  // it is -inf, as it should be
    const Var<T> loss = sum(result.output) + sum(q * q);
    tape.backward(loss);
    require_finite(loss, list);
    // But a loss that uses it is not finite, and attention made that.
    const Var<T> other = sum(result.log_sum_exp);
    EXPECT_NE(message(other, list).find("-inf at (0, 0, 0) of [attention_with_weights] (1, 2, 3), whose inputs are"),
              std::string::npos);
  });
}

TEST(RequireFinite, ABiasThatHidesIsBlamedForNothing) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    ParameterList<T> list{{"q", parameter_of(random_array<T>({1, 2, 4}, 1))}};
    const Var<T> q = tape.var(list[0].parameter), bias = tape.input(xt::xarray<T>{{0, -inf<T>}, {0, 0}});
    const auto attend = [&](Var<T> queries, Var<T> keys) {
      return sum(attention(queries, keys, q, 1, {.bias = bias}));
    };
    const Var<T> fine = attend(q, q);
    tape.backward(fine);
    EXPECT_EQ(require_finite(fine, list), grad_norm(list));

    // Scores that overflow: finite inputs beside the bias, so attention made it; or keys that are not finite.
    const T large = std::sqrt(std::numeric_limits<T>::max()) * T(16);
    const Var<T> far = tape.input(xt::xarray<T>(large * ones_of<T>({1, 2, 4})));
    const std::string made = message(attend(far, far), list);
    EXPECT_NE(made.find("of [attention] (1, 2, 4), which came of -inf in [input] (2, 2)"), std::string::npos) << made;
    const std::string passed = message(attend(q, far * far), list);
    EXPECT_NE(passed.find("the first is inf at (0, 0, 0) of [multiply] (1, 2, 4), whose inputs are finite"),
              std::string::npos)
        << passed;
  });
}

TEST(RequireFinite, AMaskOfMinusInfinityIsBlamedOnlyIfNothingElseIs) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    ParameterList<T> list{{"w", parameter_of(xt::xarray<T>{1, 2})}};
    const Var<T> w = tape.var(list[0].parameter), mask = tape.input(xt::xarray<T>{0, -inf<T>});
    const Var<T> overflow = sum(exp(w * 1e4) + mask);  // inf + -inf
    EXPECT_NE(message(overflow, list).find("got NaN; the first is inf at (0,) of [exp] (2,), whose inputs are finite"),
              std::string::npos);
    const Var<T> zeros = w - w;
    const std::string text = message(sum((w + mask) * zeros), list);  // -inf * 0
    EXPECT_NE(text.find("the first is NaN at (1,) of [multiply] (2,), which came of -inf in [input] (2,)"),
              std::string::npos)
        << text;
    const std::string alone = message(sum(mask), list);
    EXPECT_NE(alone.find("got -inf; the first is -inf at (1,) of [input] (2,), which was given so"), std::string::npos)
        << alone;
    const std::string made = message(sum(log(zeros) * zeros), list);  // -inf again, but computed
    EXPECT_NE(made.find("the first is -inf at (0,) of [log] (2,), whose inputs are finite"), std::string::npos) << made;
  });
}

TEST(RequireFinite, NamesTheOpWhoseBackwardMadeTheFirstGradient) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Rng rng(1);
    Model<T, Var<T> (*)(Var<T>)> model(root<T>, rng);
    fill(model.linear.weight, T(0));
    model.linear.bias->write()(0) = 1;  // the root of 0 has an infinite slope, in column 1
    const auto list = parameters<T>(model);
    Tape<T> tape;
    const Var<T> x = tape.input(random_array<T>({4, 3}, 1), true);
    const Var<T> loss = mean(model(x));
    tape.backward(loss);
    EXPECT_TRUE(std::isfinite(loss.item()));
    const xt::xarray<T> x_gradient = x.grad();
    const std::string text = message(loss, list), sign = model.head.weight.value()(0, 1) > 0 ? "inf" : "-inf";
    EXPECT_EQ(
        text,
        "[require_finite] expected finite gradients in step 0, got inf or NaN in that of linear.weight; the first is " +
            sign +
            " at (0, 1) of the gradient that the backward of [root] (4, 2) in layer middle gave to [linear] "
            "(4, 2) in layer linear");
    const xt::xarray<T> after = x.grad();
    EXPECT_EQ(std::memcmp(after.data(), x_gradient.data(), after.size() * sizeof(T)), 0);
  });
}

TEST(RequireFinite, NamesTheParameterThatAnOpGaveABadGradient) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    ParameterList<T> list{{"fine", parameter_of(xt::xarray<T>{1, 2})}, {"scale", parameter_of(xt::xarray<T>{4, 0})}};
    Tape<T> tape;
    const Var<T> loss = sum(root(tape.var(list[1].parameter)) * list[0].parameter);
    tape.retain_grad(loss);
    tape.backward(loss);
    EXPECT_NE(message(loss, list)
                  .find("in that of scale; the first is inf at (1,) of the gradient that the backward of "
                        "[root] (2,) gave to the parameter scale (2,)"),
              std::string::npos);
    EXPECT_EQ(loss.grad()(), T(1));
    list[1].parameter.freeze();  // then its gradient moves nothing
    require_finite(loss, list);
  });
}

TEST(RequireFinite, AGradientOfAnEarlierBackwardIsNotBlamedOnThisOne) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    ParameterList<T> list{{"a", parameter_of(xt::xarray<T>{1})}, {"b", parameter_of(xt::xarray<T>{1})}};
    Tape<T> tape;
    list[1].parameter.grad()(0) = nan_of<T>;
    const Var<T> loss = sum(tape.var(list[0].parameter) * list[1].parameter);
    tape.backward(loss);
    EXPECT_NE(message(loss, list).find("in that of b; this loss gives none, so it was there before"),
              std::string::npos);
    list[1].parameter.zero_grad();
    require_finite(loss, list);  // which runs nothing
    EXPECT_FALSE(list[1].parameter.has_grad());
  });
}

TEST(RequireFinite, AnInfiniteGradientThatLeadsToNoParameterIsNotNamed) {
  Tape<double> tape;
  ParameterList<double> list{{"w", parameter_of(xt::xarray<double>{0})}};
  const Var<double> leaf = tape.input(xt::xarray<double>{0}, true), w = tape.var(list[0].parameter);
  const Var<double> of_weight = sum(root(w * w)), of_leaf = sum(root(leaf)), loss = of_weight + of_leaf;
  tape.backward(loss);  // backward meets sqrt(leaf) first
  EXPECT_NE(message(loss, list).find("gave to [multiply] (1,)"), std::string::npos) << message(loss, list);
}

TEST(RequireFinite, NamesTheLayerOfAModelAndTheStepIsRefusedToo) {
  Rng rng(1);
  TransformerLm<float> model({.vocabulary = 5, .length = 4, .width = 8, .heads = 2, .layers = 2}, rng);
  const auto list = parameters<float>(model);
  const xt::xarray<int> tokens = {{1, 2, 3, 4}};
  Tape<float> tape;
  const auto run = [&] {
    tape.clear();
    zero_grad(list);
    const Var<float> loss = cross_entropy(model(tape, tokens), tokens);
    tape.backward(loss);
    return loss;
  };
  const Var<float> loss = run();
  const auto before = values_and_gradients(list);
  require_finite(loss, list);
  EXPECT_TRUE(same_bits(values_and_gradients(list), before));

  for (const auto& [name, parameter] : list)
    if (name == "blocks.1.linear1.weight") {
      Parameter<float> weight = parameter.share();
      fill(weight, 3e38F);
    }
  const std::string text = message(run(), list);
  EXPECT_NE(text.find("in layer blocks.1"), std::string::npos) << text;
  EXPECT_THROW(AdamW<float>(list).step(), Error);
}

TEST(RequireFinite, FindsItsWayBackThroughADeepRecord) {
  Tape<double> tape;
  ParameterList<double> list{{"w", parameter_of(xt::xarray<double>{1})}};
  Var<double> y = tape.var(list[0].parameter);
  for (int i = 0; i < 100'000; ++i) y = i == 50'000 ? log(y - y) : y * 1.0;
  EXPECT_NE(message(sum(y), list).find("-inf at (0,) of [log] (1,), whose inputs are finite"), std::string::npos);
}

TEST(RequireFinite, ALossIsAScalarOfALiveRecord) {
  Tape<double> tape;
  const Var<double> x = tape.input(ones_of<double>({2}));
  expect_message<ShapeError>([&] { require_finite(x, {}); }, {"size 1"});
  tape.clear();
  expect_message<TapeError>([&] { require_finite(x, {}); }, {"[require_finite]"});
  expect_message<TapeError>([&] { require_finite(Var<double>(), {}); }, {"[require_finite]"});
}

}  // namespace
}  // namespace xtape::require_finite_test
