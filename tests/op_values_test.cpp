// What ops do where formulas are delicate: at the ends of their domain, at ties, with NaN, far out, with bad indices.

#include "support.hpp"

namespace xtape::op_values_test {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

/// Values and derivatives of a function of one number at some points.
template <class T>
struct Curve {
  std::vector<double> values, slopes;
};
template <class T, class F>
Curve<T> curve(F f, const std::vector<double>& points) {
  Tape<T> tape;
  xt::xarray<T> x = zeros_of<T>({points.size()});
  std::copy(points.begin(), points.end(), x.begin());
  const Var<T> v = tape.input(x, true), y = f(v);
  tape.backward(y, ones_of<T>({y.size()}));
  Curve<T> result;
  for (const T value : y.value()) result.values.push_back(static_cast<double>(value));
  for (const T slope : v.grad()) result.slopes.push_back(static_cast<double>(slope));
  return result;
}
/// As == does, but NaN equals NaN.
void expect_same(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
        << "place " << i << ": " << got[i] << ", expected " << expected[i];
}

template <class T>
class OpValues : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(OpValues, Scalars);

TYPED_TEST(OpValues, FarOutNothingOverflows) {
  const std::vector<double> far = {-1000, 1000};
  const auto sigmoids = curve<TypeParam>([](auto x) { return sigmoid(x); }, far);
  expect_same(sigmoids.values, {0, 1});
  expect_same(sigmoids.slopes, {0, 0});
  const auto softpluses = curve<TypeParam>([](auto x) { return softplus(x); }, far);
  expect_same(softpluses.values, {0, 1000});
  expect_same(softpluses.slopes, {0, 1});
  const auto silus = curve<TypeParam>([](auto x) { return silu(x); }, far);
  expect_same(silus.values, {0, 1000});
  expect_same(silus.slopes, {0, 1});
  const auto gelus = curve<TypeParam>([](auto x) { return gelu_tanh(x); }, {-1e30, 1e30});
  expect_same(gelus.slopes, {0, 1});
  const auto losses = curve<TypeParam>([](auto x) { return bce_with_logits(x, 1, Reduction::none); }, far);
  expect_same(losses.values, {1000, 0});
  expect_same(losses.slopes, {-1, 0});
}

TYPED_TEST(OpValues, PowersOfZeroAndOfNegativeNumbers) {
  expect_same(curve<TypeParam>([](auto x) { return pow(x, 0); }, {0, -2, 3}).values, {1, 1, 1});
  expect_same(curve<TypeParam>([](auto x) { return pow(x, 0); }, {0, -2, 3}).slopes, {0, 0, 0});
  expect_same(curve<TypeParam>([](auto x) { return pow(x, 1); }, {0}).slopes, {1});
  expect_same(curve<TypeParam>([](auto x) { return pow(x, 2); }, {0}).slopes, {0});
  expect_same(curve<TypeParam>([](auto x) { return pow(x, -1); }, {0}).values, {inf});
  expect_same(curve<TypeParam>([](auto x) { return pow(x, 0.5); }, {-2, nan}).values, {nan, nan});
  const auto cubes = curve<TypeParam>([](auto x) { return pow(x, 3); }, {-2});
  EXPECT_NEAR(cubes.values[0], -8, 1e-5);
  EXPECT_NEAR(cubes.slopes[0], 12, 1e-5);
  const auto exponents = curve<TypeParam>([](auto b) { return pow(b.tape().number(0), b); }, {2});
  expect_same(exponents.slopes, {0});
}

TYPED_TEST(OpValues, NaNIsNotSwallowed) {
  for (const auto& f : std::vector<std::function<Var<TypeParam>(Var<TypeParam>)>>{
           [](auto x) { return maximum(x, 0); }, [](auto x) { return maximum(x.tape().number(0), x); },
           [](auto x) { return minimum(x, 0); }, [](auto x) { return minimum(x.tape().number(0), x); },
           [](auto x) { return clamp(x, -1, 1); }, [](auto x) { return max(x); }, [](auto x) { return abs(x); },
           [](auto x) { return softplus(x); }, [](auto x) { return gelu_tanh(x); }}) {
    Tape<TypeParam> tape;
    const xt::xarray<TypeParam> x = {static_cast<TypeParam>(nan)};
    EXPECT_TRUE(std::isnan(f(tape.input(x)).item()));
  }
  EXPECT_TRUE(std::isnan(curve<TypeParam>([](auto x) { return reshape(max(x), {1}); }, {3, nan, 5}).values[0]))
      << "in the middle of a row";
}

TYPED_TEST(OpValues, TiesShareTheGradient) {
  expect_same(curve<TypeParam>([](auto x) { return maximum(x, 2); }, {1, 2, 3}).slopes, {0, 0.5, 1});
  expect_same(curve<TypeParam>([](auto x) { return minimum(x, 2); }, {1, 2, 3}).slopes, {1, 0.5, 0});
  expect_same(curve<TypeParam>([](auto x) { return reshape(max(x), {1}); }, {5, 1, 5, 5, 5}).slopes,
              {0.25, 0, 0.25, 0.25, 0.25});
  expect_same(curve<TypeParam>([](auto x) { return clamp(x, -1, 1); }, {-2, -1, 0, 1, 2}).slopes, {0, 1, 1, 1, 0});
  expect_same(curve<TypeParam>([](auto x) { return abs(x); }, {-2, 0, 2}).slopes, {-1, 0, 1});
}

TYPED_TEST(OpValues, WhatWhereDoesNotChooseGetsZeroWhateverItHolds) {
  const xt::xarray<bool> condition = {true, false};
  const auto chosen = curve<TypeParam>([&](auto x) { return where(condition, x, 7); }, {3, nan});
  expect_same(chosen.values, {3, 7});
  expect_same(chosen.slopes, {1, 0});
}

TEST(OpValuesInFloat, ARunningSumOfAMillionTenthsStaysTrue) {
  Tape<float> tape;
  const std::size_t n = 1'000'000;
  const Var<float> x = tape.input(filled({n}, 0.1f), true), y = cumsum(x, 0);
  EXPECT_NEAR(y.value()(n - 1), 1e6 * static_cast<double>(0.1f), 0.01);
  tape.backward(y, ones_of<float>({n}));
  EXPECT_EQ(x.grad()(0), 1e6f);
}

TEST(OpValuesOfKl, ATargetOfZeroCountsNothing) {
  expect_same(curve<double>([](auto x) { return kl_div(x, 0, Reduction::none); }, {-3, -inf}).values, {0, 0});
}

// ---- detach

TEST(Detach, PassesTheValueAndNoGradient) {
  Tape<double> tape;
  const Var<double> x = tape.input(random_array<double>({3}, 1), true), y = sin(x), cut = detach(y);
  EXPECT_FALSE(cut.requires_grad());
  EXPECT_EQ(cut.data(), y.data());
  tape.backward(cut * x, ones_of<double>({3}));
  EXPECT_TRUE(near(gradient(x), xt::xarray<double>(y.value()), tolerance::two_paths_double));
  expect_message<TapeError>([&] { tape.backward(sum(detach(x))); }, {"[backward]"});
  expect_message<TapeError>([&] { detach(Var<double>()); }, {"[detach]"});
}

TEST(Detach, AParameterThatWasWrittenIsStillSeen) {
  Parameter<double> p({2});
  Tape<double> tape;
  const Var<double> x = tape.input(random_array<double>({2}, 1), true), y = x * detach(tape.var(p));
  p.write()(0) = 3;
  expect_message<TapeError>([&] { tape.backward(y, ones_of<double>({2})); }, {"[backward]", "was written"});
}

// ---- indices, extents and bounds that do not fit

TEST(BadSelection, SaysWhatWasExpectedAndWhatCame) {
  Tape<double> tape;
  const Var<double> x = tape.input(random_array<double>({2, 3}, 1));
  const xt::xarray<int> negative = {0, -1}, beyond = {0, 3}, table = {{0, 1}}, places = {{0, 9, 0}, {0, 0, 0}};
  expect_message<ShapeError>([&] { index_select(x, 1, negative); }, {"[index_select]", "[0, 3)", "got -1 at (1,)"});
  expect_message<ShapeError>([&] { index_select(x, 1, beyond); }, {"[index_select]", "[0, 3)", "got 3 at (1,)"});
  expect_message<ShapeError>([&] { index_select(x, 1, table); }, {"[index_select]", "(count,)", "got (1, 2)"});
  expect_message<ShapeError>([&] { index_select(x, 2, beyond); }, {"[index_select]", "axis"});
  expect_message<ShapeError>([&] { gather(x, 1, places); }, {"[gather]", "got 9 at (0, 1)"});
  expect_message<ShapeError>([&] { gather(x, 0, table); }, {"[gather]", "(2, 3)", "got (1, 2)"});
  expect_message<ShapeError>([&] { one_hot(tape, beyond, 3); }, {"[one_hot]", "got 3 at (1,)"});
  expect_message<ShapeError>([&] { split(x, {1, 1}, 1); }, {"[split]", "add up to 3", "got 1 + 1"});
  expect_message<ShapeError>([&] { split<2>(x, 1); }, {"[split]", "a multiple of 2", "got 3"});
  expect_message<ShapeError>([&] { pad(x, 0, std::size_t{1} << 50, 0); }, {"[pad]"});
  expect_message<Error>([&] { clamp(x, 1, -1); }, {"[clamp]", "got 1 and -1"});
  expect_message<Error>([&] { clamp(x, nan, 1); }, {"[clamp]"});
  expect_message<ShapeError>([&] { mse(x, reshape(x, {3, 2})); }, {"[mse]", "(2, 3)", "got (3, 2)"});
  expect_message<ShapeError>([&] { var(x, 1, false, 3); }, {"[var]", "correction of 3", "got 3"});
  expect_message<ShapeError>([&] { cumsum(tape.number(1), 0); }, {"[cumsum]"});
  expect_message<ShapeError>([&] { where(xt::xarray<bool>{true, false}, x, 1); }, {"[where]", "(2,)", "(2, 3)"});
  const std::vector<double> two = {1, 1}, negative_weight = {1, -1, 1};
  const xt::xarray<int> targets = {0, 1};
  expect_message<ShapeError>([&] { cross_entropy(x, targets, {.class_weights = two}); },
                             {"class_weights", "(3,)", "(2,)"});
  expect_message<Error>([&] { cross_entropy(x, targets, {.class_weights = negative_weight}); },
                        {"class_weights", "got -1 for class 1"});
}

}  // namespace
}  // namespace xtape::op_values_test
