// The checker is fed wrong gradients and must catch each; the right version of each passes.

#include <numeric>

#include "planted_faults.hpp"

namespace xtape::gradcheck_test {
namespace {

// ---- faults of an elementwise op, x^3

const auto right = adding([](double dy, double x) { return dy * 3 * x * x; });

template <class Backward>
GradcheckReport check_cube(Backward backward) {
  return gradcheck(cube(backward), {{3, 4}});
}

TEST(Gradcheck, TheRightGradientPasses) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const auto report = gradcheck(cube(right), {{3, 4}}, {.seed = seed});
    EXPECT_TRUE(report) << report;
    ASSERT_EQ(report.tensors.size(), 1U);
    EXPECT_EQ(report.tensors[0].checked, 12U);
    EXPECT_EQ(reason(report), Reason::ok);
  }
}

TEST(Gradcheck, AFactorIsCaught) {
  const auto report = check_cube(adding([](double dy, double x) { return 1.01 * dy * 3 * x * x; }));
  EXPECT_FALSE(report);
  EXPECT_EQ(reason(report), Reason::mismatch);
}

TEST(Gradcheck, AWrongSignIsCaught) {
  const auto report = check_cube(adding([](double dy, double x) { return -dy * 3 * x * x; }));
  EXPECT_EQ(reason(report), Reason::mismatch);
}

TEST(Gradcheck, OneElementOffByAThousandthIsCaughtAndNamed) {
  const auto report = check_cube([](auto x, auto y) {
    right(x, y);
    x.grad()(1, 2) += 1e-3;
  });
  EXPECT_EQ(reason(report), Reason::mismatch);
  EXPECT_EQ(tensor(report).worst.place, (Shape{1, 2}));
  EXPECT_NEAR(tensor(report).worst.analytic - tensor(report).worst.numeric, 1e-3, tolerance::behaviour_double);
  EXPECT_LT(tensor(report).worst.bar, 1e-3);
}

TEST(Gradcheck, OverwritingIsCaught) {
  const auto report = check_cube([](Var<double> x, Var<double> y) {
    std::fill_n(x.grad().data(), x.size(), 0.0);
    right(x, y);
  });
  EXPECT_EQ(reason(report), Reason::mismatch);
}

TEST(Gradcheck, AnIgnoredUpstreamGradientIsCaught) {
  const auto report = check_cube(adding([](double, double x) { return 3 * x * x; }));
  EXPECT_EQ(reason(report), Reason::mismatch);
}

TEST(Gradcheck, ZerosAreCaught) {
  EXPECT_EQ(reason(check_cube(adding([](double dy, double) { return 0 * dy; }))), Reason::no_gradient);
  EXPECT_EQ(reason(check_cube([](auto, auto) {})), Reason::no_gradient);
}

TEST(Gradcheck, NaNInOneElementIsCaughtAndBlamedOnItsTensorAlone) {
  const auto faulty = [](auto x, auto y) {
    right(x, y);
    x.grad()(2, 0) = std::numeric_limits<double>::quiet_NaN();
  };
  const auto report = gradcheck([&](Var<double> x, Var<double> other) { return cube(faulty)(x) + cube(right)(other); },
                                {{3, 4}, {3, 4}});
  EXPECT_FALSE(report);
  EXPECT_EQ(reason(report), Reason::non_finite);
  EXPECT_EQ(tensor(report).worst.place, (Shape{2, 0}));
  EXPECT_EQ(reason(report, "input 1"), Reason::ok);
}

TEST(Gradcheck, NoiseInACallbackIsCaught) {
  Rng rng(1);
  const auto report = check_cube([noise = &rng](auto x, auto y) {
    right(x, y);
    x.grad()(0, 0) += 1e-3 * noise->normal();
  });
  EXPECT_EQ(reason(report), Reason::non_deterministic);
}

TEST(Gradcheck, NoiseInForwardIsCaught) {
  Rng rng(2);
  const auto report = gradcheck([&](Var<double> x) { return x * (1 + 1e-9 * rng.normal()); }, {{3}});
  EXPECT_EQ(reason(report), Reason::non_deterministic);
}

TEST(Gradcheck, InfinityInForwardIsCaught) {
  EXPECT_EQ(reason(gradcheck_at([](Var<double> x) { return log(x); }, {xt::xarray<double>{1.0, 0.0}})),
            Reason::non_finite);
}

// ---- faults of whole terms and operands

TEST(Gradcheck, AMissingTermIsCaught) {
  const auto sine = [](double v) { return v * std::sin(v); };
  const auto missing = [&](Var<double> x) {
    return elementwise(x, sine, adding([](double dy, double v) { return dy * std::sin(v); }));
  };
  const auto complete = [&](Var<double> x) {
    return elementwise(x, sine, adding([](double dy, double v) { return dy * (std::sin(v) + v * std::cos(v)); }));
  };
  EXPECT_EQ(reason(gradcheck(missing, {{5}})), Reason::mismatch);
  EXPECT_TRUE(gradcheck(complete, {{5}}));
}

TEST(Gradcheck, ATransposedWeightGradientIsCaught) {
  const auto report = gradcheck(
      product([](auto w, const xt::xarray<double>& dw) { add_to_gradient(w, transposed(dw)); }), {{4, 4}, {4, 4}});
  EXPECT_EQ(reason(report), Reason::ok);
  EXPECT_EQ(reason(report, "input 1"), Reason::mismatch);
  EXPECT_TRUE(gradcheck(product(add_to_gradient), {{4, 4}, {4, 4}}));
}

TEST(Gradcheck, AnOperandThatTheOpForgotIsCaught) {
  // w takes part in forward, but is not among the inputs of the output.
  const auto forgetful = [](Var<double> x, Var<double> w) {
    const Var<double> y = x.tape().output("forgetful", x.shape(), x);
    std::transform(x.data(), x.data() + x.size(), w.data(), y.data(), std::multiplies<double>());
    x.tape().on_backward(y, [=] {
      for (std::size_t i = 0; i < x.size(); ++i) x.grad().data()[i] += y.grad().data()[i] * w.data()[i];
    });
    return y;
  };
  const auto report = gradcheck(forgetful, {{3}, {3}});
  EXPECT_EQ(reason(report), Reason::ok);
  EXPECT_EQ(reason(report, "input 1"), Reason::no_gradient);
}

TEST(Gradcheck, AnOutputThatIsCutOffIsCaught) {
  const auto cut = [](Var<double> x) { return x.tape().input(array(square(x))); };
  EXPECT_EQ(reason(gradcheck(cut, {{3}})), Reason::no_gradient);
}

TEST(Gradcheck, AnInputThatDoesNotMatterMayHaveNoGradient) {
  const auto report = gradcheck([](Var<double> x, Var<double>) { return exp(x); }, {{3}, {2}});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(tensor(report, "input 1").worst.place, Shape{0});  // an element is named even where all are exact
}

TEST(Gradcheck, AFaultInTheMiddleOfAGraphIsCaught) {
  const auto faulty = adding([](double dy, double x) { return dy * 2.9 * x * x; });
  EXPECT_FALSE(gradcheck([&](Var<double> x) { return sum(softmax(cube(faulty)(exp(x)) * 0.1) * x, -1); }, {{2, 3}}));
  EXPECT_TRUE(gradcheck([&](Var<double> x) { return sum(softmax(cube(right)(exp(x)) * 0.1) * x, -1); }, {{2, 3}}));
}

// ---- what a plain sum of the output would not see

TEST(Gradcheck, TheProjectionSeesWhatASumIsBlindTo) {
  // A softmax whose backward is twice too large: the sum of its output is 1, so that the sum's gradient is 0 either
  // way.
  const auto doubled = [](Var<double> x) {
    const Var<double> y = x.tape().output("doubled", x.shape(), x);
    const std::size_t n = x.size();
    double total = 0;
    for (std::size_t i = 0; i < n; ++i) total += std::exp(x.data()[i]);
    for (std::size_t i = 0; i < n; ++i) y.data()[i] = std::exp(x.data()[i]) / total;
    x.tape().on_backward(y, [=] {
      const double* const dy = y.grad().data();
      double* const dx = x.grad().data();
      const double inner = std::inner_product(dy, dy + n, y.data(), 0.0);
      for (std::size_t i = 0; i < n; ++i) dx[i] += 2 * y.data()[i] * (dy[i] - inner);
    });
    return y;
  };
  Tape<double> tape;
  const Var<double> x = tape.input(xt::xarray<double>{1, 2, 3}, true);
  tape.backward(sum(doubled(x)));
  EXPECT_TRUE(near(gradient(x), xt::xarray<double>{0, 0, 0}, tolerance::two_paths_double));  // blind
  EXPECT_EQ(reason(gradcheck(doubled, {{3}})), Reason::mismatch);
}

TEST(Gradcheck, SteepFunctionsDoNotHideAFault) {
  // With a step that is too wide for sin(1000 x) the error bar would be as large as the derivative itself.
  const auto steep = [](double factor) {
    return [factor](Var<double> x) {
      return elementwise(
          x, [](double v) { return std::sin(1000 * v); },
          adding([factor](double dy, double v) { return dy * factor * std::cos(1000 * v); }));
    };
  };
  const auto wrong = gradcheck(steep(1010), {{6}});
  EXPECT_EQ(reason(wrong), Reason::mismatch) << wrong;
  const auto correct = gradcheck(steep(1000), {{6}});
  EXPECT_TRUE(correct) << correct;
}

TEST(Gradcheck, TheReportReadsAsATable) {
  const auto report = check_cube(adding([](double dy, double x) { return 1.01 * dy * 3 * x * x; }));
  const std::string text = to_string(report);
  for (const char* part :
       {"mismatch", "input 0", "(3, 4)", "worst at", "analytic", "numeric", "error bar", "step", "ratio", "12"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(Gradcheck, LeavesWeightsAndGradientsAsAUserExpects) {
  Rng rng(3);
  Linear<double> layer(3, 2, rng);
  layer.weight.freeze();
  const xt::xarray<double> before = layer.bias->value();
  const GradcheckReport report = gradcheck(layer, {{4, 3}});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(report.tensors.size(), 2u) << "a frozen parameter is left out: " << report;
  EXPECT_FALSE(layer.bias->has_grad());
  EXPECT_EQ(xt::xarray<double>(layer.bias->value()), before);
}

}  // namespace
}  // namespace xtape::gradcheck_test
