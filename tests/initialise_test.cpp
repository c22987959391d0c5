#include <algorithm>

#include "behaviour.hpp"

namespace xtape::initialise_test {
namespace {

/// Standard deviation around 0.
template <class T>
double deviation(const Parameter<T>& parameter) {
  double squares = 0;
  for (const T x : values_of(parameter)) squares += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(squares / static_cast<double>(parameter.size()));
}

TEST(Initialise, FillSetsEveryElement) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Parameter<T> p({2, 3});
    const auto version = p.version();
    fill(p, T(7));
    EXPECT_TRUE(xt::all(xt::equal(p.value(), T(7))));
    EXPECT_GT(p.version(), version);
  });
}

TEST(Initialise, NormalHasTheDeviationAskedFor) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Rng rng(1);
    Parameter<T> p({100, 200});
    init_normal(p, 0.02, rng);
    EXPECT_NEAR(deviation(p) / 0.02, 1, tolerance::statistical);
  });
}

TEST(Initialise, ScaledNormalKeepsTheVarianceOfActivations) {
  Rng rng(2);
  Parameter<double> weight({200, 100});  // (out, in)
  init_scaled_normal(weight, rng);
  EXPECT_NEAR(deviation(weight) * 10, 1, tolerance::statistical);
}

TEST(Initialise, XavierUniformFillsItsInterval) {
  Rng rng(3);
  Parameter<double> weight({200, 100});
  init_xavier_uniform(weight, rng);
  const double bound = std::sqrt(6.0 / 300);
  const xt::xarray<double> values = values_of(weight);
  EXPECT_LE(*std::max_element(values.begin(), values.end()), bound);
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -bound);
  EXPECT_NEAR(deviation(weight) / (bound / std::sqrt(3.0)), 1, tolerance::statistical);
}

TEST(Initialise, IsLeftOutForAModelThatIsFilledFromAFile) {
  Rng rng(5);
  Parameter<double> before({4, 4}), after({4, 4});
  {
    const NoInitialValues outer;
    { const NoInitialValues inner; }
    init_scaled_normal(before, rng), init_xavier_uniform(before, rng);
  }
  init_normal(after, 1, rng);
  EXPECT_EQ(deviation(before), 0);
  EXPECT_GT(deviation(after), 0.1);
}

TEST(Initialise, FansAreThoseOfAMatrix) {
  Rng rng(4);
  Parameter<double> vector({5});
  expect_message<ShapeError>([&] { init_scaled_normal(vector, rng); }, {"[init_scaled_normal]", "(out, in)", "(5,)"});
  expect_message<ShapeError>([&] { init_xavier_uniform(vector, rng); }, {"[init_xavier_uniform]", "(out, in)", "(5,)"});
}

TEST(Initialise, GptScalesWhatFeedsTheResidual) {
  Rng rng(5);
  TransformerLm<double> model({.vocabulary = 50, .length = 50, .width = 64, .heads = 2, .layers = 2}, rng);
  auto list = parameters<double>(model);
  init_gpt(list, 2, rng);
  std::size_t residual = 0;
  for (const auto& [name, parameter] : list) {
    SCOPED_TRACE(name);
    if (parameter.role() == Role::bias) {
      EXPECT_EQ(deviation(parameter), 0);
    } else if (parameter.role() == Role::gain) {
      EXPECT_TRUE(xt::all(xt::equal(parameter.value(), 1.0)));
    } else if (name.ends_with("out_proj.weight") || name.ends_with("linear2.weight")) {
      EXPECT_NEAR(deviation(parameter) / 0.01, 1, 2 * tolerance::statistical);  // 0.02 / sqrt(4)
      ++residual;
    } else {
      EXPECT_NEAR(deviation(parameter) / 0.02, 1, 2 * tolerance::statistical);
    }
  }
  EXPECT_EQ(residual, 4U);
  expect_message<Error>([&] { init_gpt(list, 0, rng); }, {"[init_gpt]", "got 0"});
}

TEST(Initialise, TheSameSeedGivesTheSameModelInFloatAndDouble) {
  const TransformerLmOptions options{.vocabulary = 5, .length = 4, .width = 4, .heads = 2, .layers = 1};
  Rng first(6), again(6), in_double(6);
  TransformerLm<float> a(options, first), b(options, again);
  TransformerLm<double> c(options, in_double);
  const auto list_a = parameters<float>(a), list_b = parameters<float>(b);
  const auto list_c = parameters<double>(c);
  for (std::size_t i = 0; i < list_a.size(); ++i) {
    EXPECT_EQ(values_of(list_a[i].parameter), values_of(list_b[i].parameter)) << list_a[i].name;
    EXPECT_TRUE(near(values_of(list_a[i].parameter), values_of(list_c[i].parameter), tolerance::two_paths_float))
        << list_a[i].name;
  }
}

}  // namespace
}  // namespace xtape::initialise_test
