// The checker at kinks and far from 1 (cases O25 and O26).

#include <xtensor/xmanipulation.hpp>

#include "planted_faults.hpp"

namespace xtape::behaviour_gradcheck_test {
namespace {

/// relu with a derivative of the test's choice at 0.
auto relu_with(double derivative_at_0) {
  return [=](Var<double> x) {
    return elementwise(
        x, [](double v) { return std::max(v, 0.0); },
        [=](Var<double> in, Var<double> y) {
          const auto dx = in.grad().data();
          for (std::size_t i = 0; i < in.size(); ++i) {
            const double v = in.data()[i];
            dx[i] += y.grad().data()[i] * (v > 0 ? 1 : v < 0 ? 0 : derivative_at_0);
          }
        });
  };
}

TEST(Behaviour, O25_KinksAreListedAndAccepted) {
  const xt::xarray<double> at = {-1, 0, 2};
  const auto report = gradcheck_at([](Var<double> x) { return relu(x); }, {at});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(reason(report), Reason::kink);
  EXPECT_EQ(report.tensors[0].kinks, 1U);
  EXPECT_EQ(report.tensors[0].checked, 3U);
  for (const double inside : {0.0, 0.5, 1.0}) EXPECT_TRUE(gradcheck_at(relu_with(inside), {at})) << inside;
}

TEST(Behaviour, O25_AWrongGradientAtAKinkFails) {
  for (const double outside : {2.0, 1.01, -0.01, -1.0}) {
    const auto report = gradcheck_at(relu_with(outside), {xt::xarray<double>{-1, 0, 2}});
    EXPECT_FALSE(report) << outside << "\n" << report;
    EXPECT_EQ(reason(report), Reason::mismatch);
    EXPECT_EQ(tensor(report).worst.place, (Shape{1}));
  }
}

TEST(Behaviour, O25_AKinkWithinTheStepIsNoFalseAlarm) {
  const auto report =
      gradcheck_at([](Var<double> x) { return relu(x); }, {xt::xarray<double>{1, 1e-4, -1e-4, 3e-5, -1}});
  EXPECT_TRUE(report) << report;
  // Nor is it a place to hide: the right side of the kink has the derivative 1.
  const auto wrong = [](Var<double> x) {
    return elementwise(
        x, [](double v) { return std::max(v, 0.0); },
        [](Var<double> in, Var<double> y) {
          for (std::size_t i = 0; i < in.size(); ++i)
            in.grad().data()[i] += y.grad().data()[i] * (in.data()[i] > 0.01 ? 1 : 0);
        });
  };
  const auto hidden = gradcheck_at(wrong, {xt::xarray<double>{1, 1e-4, -1e-4, -1}});
  EXPECT_FALSE(hidden) << hidden;
}

TEST(Behaviour, O25_SmoothFunctionsAreNotTakenForKinks) {
  // Flat, curved and steep places of smooth functions, where the one-sided slopes differ because of curvature.
  const xt::xarray<double> at = {0, 1e-3, -1, 3, 10};
  for (const auto& report : {gradcheck_at([](Var<double> x) { return x * x; }, {at}),
                             gradcheck_at([](Var<double> x) { return tanh(x); }, {at}),
                             gradcheck_at([](Var<double> x) { return exp(x); }, {at}),
                             gradcheck_at([](Var<double> x) { return x * x * x * x; }, {at})}) {
    EXPECT_TRUE(report) << report;
    EXPECT_EQ(reason(report), Reason::ok) << report;
  }
}

TEST(Behaviour, O26_ALargeConstantDoesNotDisturb) {
  const auto f = [](Var<double> x) { return x * x + 1000; };
  const auto report = gradcheck_at(f, {xt::xarray<double>{1}});
  EXPECT_TRUE(report) << report;
  const CheckedElement& x = tensor(report).worst;
  EXPECT_NEAR(x.numeric / x.analytic, 1, tolerance::behaviour_double);
  EXPECT_GT(x.step, 0);
  EXPECT_GT(x.bar, 0);
}

/// Checks right functions, and the same with a gradient 1 % too large, at inputs of a given scale and offset.
void check_scale(double scale, double offset) {
  SCOPED_TRACE(fmt::format("scale {}, offset {}", scale, offset));
  const auto f = [=](double factor) {
    return [=](Var<double> x) {
      const Var<double> u = x * (1 / scale) - offset / scale;  // of size 1
      return elementwise(
          tanh(u), [](double v) { return v * v * v; },
          adding([factor](double dy, double v) { return dy * factor * 3 * v * v; }));
    };
  };
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto at = random_array<double>({4, 3}, seed, scale, offset);
    const auto passes = gradcheck_at(f(1), {at}, {.seed = seed});
    EXPECT_TRUE(passes) << passes;
    EXPECT_EQ(reason(passes), Reason::ok) << passes;
    const auto fails = gradcheck_at(f(1.01), {at}, {.seed = seed});
    EXPECT_FALSE(fails) << fails;
  }
}

TEST(Behaviour, O26_InputsOfEveryScale) {
  for (const double scale : {1e-9, 1e-3, 1.0, 1e3, 1e9}) check_scale(scale, 0);
}

TEST(Behaviour, O26_InputsFarFromZero) {
  for (const double offset : {1e3, -1e6}) check_scale(1, offset);
}

TEST(Behaviour, O26_StepsThatAgreeByAccidentAreNotTrusted) {
  // v + a v^3 + b v^5 at v = 0, where the central differences with h = 1e-3 and h / 2 agree, 2.5 % away from the
  // slope 1.
  constexpr double h = 1e-3, b = 1e11, a = -1.25 * b * h * h;
  const auto f = [](Var<double> x) {
    return elementwise(
        x,
        [](double at) {
          const double v = at - 1, squared = v * v;
          return v * (1 + squared * (a + b * squared));
        },
        adding([](double dy, double) { return dy; }));
  };
  const auto report = gradcheck_at(f, {xt::xarray<double>{1}});
  EXPECT_TRUE(report) << report;
}

TEST(Behaviour, O26_OpsAtInputsOfEveryScale) {
  for (const double scale : {1e-3, 1.0, 1e3})
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      SCOPED_TRACE(fmt::format("scale {}, seed {}", scale, seed));
      const auto at = random_array<double>({3, 4}, seed, scale), other = random_array<double>({4, 3}, seed + 10, scale);
      const auto passes = [](const GradcheckReport& report) { EXPECT_TRUE(report) << report; };
      passes(gradcheck_at([](Var<double> x) { return layer_norm(x); }, {at}));
      passes(gradcheck_at([](Var<double> x) { return log_softmax(x); }, {at}));
      passes(gradcheck_at([](Var<double> x) { return softmax(x); }, {at}));
      passes(gradcheck_at([](Var<double> x) { return gelu(x); }, {at}));
      passes(gradcheck_at([](Var<double> x) { return relu(x); }, {at}));
      passes(gradcheck_at([](Var<double> x, Var<double> y) { return matmul(x, y); }, {at, other}));
      passes(gradcheck_at([](Var<double> x, Var<double> y) { return x / transpose(y); }, {at, other}));
    }
}

TEST(Behaviour, O26_ValuesOffsetByAMillion) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto at = random_array<double>({3, 4}, seed, 1, 1e6);
    const auto passes = [](const GradcheckReport& report) { EXPECT_TRUE(report) << report; };
    passes(gradcheck_at([](Var<double> x) { return layer_norm(x); }, {at}));
    passes(gradcheck_at([](Var<double> x) { return log_softmax(x); }, {at}));
    passes(gradcheck([](Var<double> x) { return layer_norm(x) + 1e6; }, {{3, 4}}, {.seed = seed}));
    passes(gradcheck([](Var<double> x) { return softmax(x + 1e6) - 1e6; }, {{3, 4}}, {.seed = seed}));
  }
}

TEST(Behaviour, O25_InputsAtAndNearKinks) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    xt::xarray<double> x = random_array<double>({200}, seed), y = random_array<double>({200}, seed + 9);
    x(3) = 0;
    for (std::size_t k = 0; k < 20; ++k) x(10 * k + 5) = (k % 2 == 0 ? 1e-9 : -1e-9) * static_cast<double>(1 + k % 3);
    const xt::xarray<double> close = y + x;  // at and within 1e-9 of where y is the larger one
    const auto passes = [](const GradcheckReport& report) { EXPECT_TRUE(report) << report; };
    passes(gradcheck_at([](Var<double> v) { return relu(v); }, {x}));
    passes(gradcheck_at([](Var<double> v) { return abs(v); }, {x}));
    passes(gradcheck_at([](Var<double> v) { return clamp(v, 0.0, 1.0); }, {x}));
    passes(gradcheck_at([](Var<double> v, Var<double> w) { return maximum(v, w); }, {close, y}));
    passes(gradcheck_at([](Var<double> v) { return sum(relu(v) * relu(v)); }, {x}));
  }
}

TEST(Behaviour, O26_InputsScaledByAMillionthAndAMillion) {
  for (const double scale : {1e-6, 1e6})
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      SCOPED_TRACE(fmt::format("scale {}, seed {}", scale, seed));
      const auto at = random_array<double>({3, 4}, seed, scale), other = random_array<double>({4, 3}, seed + 10, scale);
      const auto passes = [](const GradcheckReport& report) { EXPECT_TRUE(report) << report; };
      passes(gradcheck_at([](Var<double> x) { return layer_norm(x); }, {at}));
      passes(gradcheck_at([](Var<double> x) { return softmax(x); }, {at}));
      passes(gradcheck_at([](Var<double> x) { return log_softmax(x); }, {at}));
      passes(gradcheck_at([](Var<double> x) { return gelu(x); }, {at}));
      passes(gradcheck_at([](Var<double> x) { return tanh(x); }, {at}));
      passes(gradcheck_at([](Var<double> x, Var<double> y) { return matmul(x, y); }, {at, other}));
      passes(gradcheck_at([](Var<double> x, Var<double> y) { return x / transpose(y); }, {at, other}));
      passes(gradcheck_at([](Var<double> x, Var<double> y) { return attention(x, x, y, 2); },
                          {xt::xarray<double>(xt::reshape_view(at, {1, 3, 4})),
                           xt::xarray<double>(xt::reshape_view(other, {1, 3, 4}))}));
    }
}

TEST(Behaviour, O26_SoftmaxOfLargeLogits) {
  for (const double scale : {1e3, 1e4})
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      SCOPED_TRACE(fmt::format("scale {}, seed {}", scale, seed));
      const auto passes = [](const GradcheckReport& report) { EXPECT_TRUE(report) << report; };
      for (const double offset : {0.0, scale}) {
        const auto spread = random_array<double>({4, 5}, seed, offset == 0 ? scale : 1, offset);
        passes(gradcheck_at([](Var<double> x) { return softmax(x); }, {spread}));
        passes(gradcheck_at([](Var<double> x) { return log_softmax(x); }, {spread}));
        passes(gradcheck_at([](Var<double> x) { return cross_entropy(x, xt::xarray<int>{0, 1, 2, 3}); }, {spread}));
      }
    }
}

}  // namespace
}  // namespace xtape::behaviour_gradcheck_test
