// What a check costs, what it sees of large tensors, functions that are none, and the report.

#include <nlohmann/json.hpp>

#include "behaviour.hpp"
#include "planted_faults.hpp"

namespace xtape::gradcheck_functions_test {
namespace {

// ---- cost and samples

TEST(GradcheckCost, FourForwardPassesAnElement) {
  std::size_t calls = 0;
  const auto f = [&](Var<double> x) {
    ++calls;
    return sum(tanh(x) * softmax(x), -1);
  };
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    calls = 0;
    const GradcheckReport report = gradcheck(f, {{25, 40}}, {.seed = seed});
    EXPECT_TRUE(report) << report;
    EXPECT_EQ(tensor(report).checked, 1000u);
    EXPECT_GE(calls, 4000u);
    EXPECT_LE(calls, 4040u) << "for seed " << seed;  // 1 %: repetitions, noise and extrapolation
  }
}

/// x * x, whose gradient is off in one element.
auto square_off_at(std::size_t k, double error) {
  return [=](Var<double> x) {
    const Var<double> y = x.tape().output("square_off", x.shape(), x);
    const std::size_t n = x.size();
    const double* in = x.data();
    double* out = y.data();
    for (std::size_t j = 0; j < n; ++j) out[j] = in[j] * in[j];
    x.tape().on_backward(y, [=] {
      double *dx = x.grad().data(), *dy = y.grad().data();
      for (std::size_t j = 0; j < n; ++j) dx[j] += 2 * in[j] * dy[j];
      dx[k] += error;
    });
    return y;
  };
}

TEST(GradcheckSamples, AreDrawnFromLargeTensorsAlone) {
  const auto f = [](Var<double> x, Var<double> y) { return sum(tanh(x), -1) * y; };
  const GradcheckReport report = gradcheck(f, {{3, 400}, {3}});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(tensor(report).checked, 100u);
  EXPECT_EQ(tensor(report).directions, 2u);
  EXPECT_EQ(tensor(report, "input 1").checked, 3u);
  EXPECT_EQ(tensor(report, "input 1").directions, 0u);
  const GradcheckReport few = gradcheck(f, {{3, 400}, {3}}, {.samples = 2, .directions = 0});
  EXPECT_EQ(tensor(few).checked, 2u);
  EXPECT_EQ(tensor(few).directions, 0u);
  EXPECT_EQ(tensor(few, "input 1").checked, 2u);
}

TEST(GradcheckSamples, HoldTheLargestGradient) {
  const auto f = square_off_at(777, 1e6);
  const GradcheckReport report = gradcheck(f, {{1500}}, {.samples = 1, .directions = 0});
  EXPECT_EQ(reason(report), Reason::mismatch);
  EXPECT_EQ(tensor(report).worst.place, (Shape{777}));
}

TEST(GradcheckSamples, OneWrongElementAmongManyIsFoundByHalvingADirection) {
  const auto finds = [](const Shape& shape, std::uint64_t seed, const Shape& place) {
    const std::size_t k = place[0] * shape[1] + place[1];
    const GradcheckReport report =
        gradcheck(square_off_at(k, 1e-3), {shape}, {.seed = seed, .samples = 2, .blame = false});
    EXPECT_EQ(reason(report), Reason::mismatch);
    EXPECT_EQ(tensor(report).worst.place, place);
    EXPECT_NEAR(tensor(report).worst.analytic - tensor(report).worst.numeric, 1e-3, 1e-5);
  };
  for (std::uint64_t seed = 0; seed < 5; ++seed) finds({100, 200}, seed, {61, 56});
  finds({1000, 1000}, 0, {617, 156});
  EXPECT_TRUE(gradcheck(square_off_at(0, 0), {{100, 200}}, {.samples = 2}));
}

TEST(GradcheckSamples, ANaNAnywhereIsFound) {
  const GradcheckReport report = gradcheck(square_off_at(1234, std::nan("")), {{1500}}, {.samples = 2});
  EXPECT_EQ(reason(report), Reason::non_finite);
  EXPECT_EQ(tensor(report).worst.place, (Shape{1234}));
}

// ---- functions that are none

void expect_problem(const GradcheckReport& report, const char* part) {
  EXPECT_FALSE(report);
  EXPECT_NE(report.problem.find(part), std::string::npos) << report.problem;
  EXPECT_NE(to_string(report).find(part), std::string::npos) << report;
}

TEST(GradcheckMisuse, AFunctionThatThrows) {
  expect_problem(gradcheck([](Var<double> x) -> Var<double> { return matmul(x, x); }, {{2, 3}}), "[matmul]");
  const auto moody = [](Var<double> x) {
    if (x.data()[0] > 1) throw std::runtime_error("not beyond 1");
    return x;
  };
  expect_problem(gradcheck_at(moody, {xt::xarray<double>{1.0}}), "threw: not beyond 1");
  expect_problem(gradcheck([](Var<double>) -> Var<double> { throw 7; }, {{1}}), "no std::exception");
  expect_problem(gradcheck(cube([](auto, auto) { throw std::runtime_error("in backward"); }), {{1}}), "in backward");
  expect_problem(gradcheck([](Var<double>) { return Var<double>(); }, {{1}}), "the function threw");
}

TEST(GradcheckMisuse, AnotherShapeTheSecondTime) {
  std::size_t calls = 0;
  expect_problem(gradcheck([&](Var<double> x) { return ++calls % 2 == 1 ? x * x : sum(x); }, {{2}}),
                 "(2,) at first and ()");
}

TEST(GradcheckMisuse, AnInputThatIsChanged) {
  expect_problem(gradcheck(
                     [](Var<double> x, Var<double> y) {
                       const Var<double> product = x * y;
                       y.data()[0] = 0;
                       return product;
                     },
                     {{2}, {2}}),
                 "changes input 1");
  expect_problem(gradcheck(cube([](Var<double> x, Var<double> y) {
                             add_slope(x, y, [](double v) { return 3 * v * v; });
                             x.data()[1] *= 2;
                           }),
                           {{2}}),
                 "changes input 0");
}

TEST(GradcheckMisuse, AParameterThatIsChangedIsPutBack) {
  auto weight = parameter_of(xt::xarray<double>{1, 2, 3});
  for (const bool through_data : {true, false}) {
    const auto f = [&](Var<double> x) {
      const Var<double> y = x * weight;
      if (through_data)
        x.tape().var(weight).data()[0] += 1;
      else
        weight.write()(0) += 1;
      return y;
    };
    expect_problem(gradcheck(f, {{3}}, {.parameters = {{"weight", weight}}}), "changes the parameter weight");
    EXPECT_EQ(xt::xarray<double>(weight.value()), (xt::xarray<double>{1, 2, 3}));
    EXPECT_FALSE(weight.has_grad());
  }
}

TEST(GradcheckMisuse, AnInputThatIsIgnoredIsNoted) {
  const GradcheckReport report = gradcheck([](Var<double> x, Var<double>) { return exp(x); }, {{2}, {2}});
  EXPECT_TRUE(report) << report;
  EXPECT_EQ(reason(report, "input 1"), Reason::ok);
  EXPECT_NE(tensor(report, "input 1").note.find("does not depend on it"), std::string::npos);
  EXPECT_EQ(tensor(report).note, "");
}

// ---- how many elements may stand at kinks

TEST(GradcheckKinks, OneOrAHundredthOfThemMay) {
  const auto f = [](Var<double> x) { return relu(x); };
  const auto with_kinks = [](std::size_t n, std::size_t kinks) {
    xt::xarray<double> x = random_array<double>({n}, 3);
    for (std::size_t k = 0; k < kinks; ++k) x(k * n / kinks) = 0;
    return x;
  };
  for (const auto& [n, kinks, passes] : {std::tuple{1, 1, true},
                                         {4, 1, true},
                                         {4, 2, false},
                                         {100, 1, true},
                                         {200, 2, true},
                                         {200, 3, false},
                                         {10, 5, false}}) {
    const GradcheckReport report = gradcheck_at(f, {with_kinks(n, kinks)});
    EXPECT_EQ(static_cast<bool>(report), passes) << report;
    EXPECT_EQ(reason(report), Reason::kink);
    EXPECT_EQ(tensor(report).kinks, kinks);
    EXPECT_EQ(to_string(report).find("stand at kinks") != std::string::npos, !passes) << report;
  }
}

// ---- the report

TEST(GradcheckReports, WorstFirst) {
  const auto f = [](Var<double> x, Var<double> y, Var<double> z) {
    return exp(x) + square_off_at(1, 1e-3)(y) + square_off_at(0, std::nan(""))(z);
  };
  const GradcheckReport report = gradcheck(f, {{3}, {3}, {3}});
  ASSERT_EQ(report.tensors.size(), 3u);
  EXPECT_EQ(report.tensors[0].name, "input 2");
  EXPECT_EQ(report.tensors[1].name, "input 1");
  EXPECT_EQ(report.tensors[2].name, "input 0");
  const std::string text = to_string(report);
  EXPECT_LT(text.find("non_finite"), text.find("mismatch"));
  EXPECT_LT(text.find("mismatch"), text.find("ok "));
}

TEST(GradcheckReports, AsJson) {
  const auto f = [](Var<double> x, Var<double> y) { return exp(x) + square_off_at(0, std::nan(""))(y); };
  const auto json = nlohmann::json::parse(to_json(gradcheck(f, {{2, 3}, {2, 3}})));
  EXPECT_EQ(json["passed"], false);
  EXPECT_EQ(json["problem"], "");
  ASSERT_EQ(json["tensors"].size(), 2u);
  EXPECT_EQ(json["tensors"][0]["name"], "input 1");
  EXPECT_EQ(json["tensors"][0]["reason"], "non_finite");
  EXPECT_EQ(json["tensors"][0]["worst"]["analytic"], "NaN");
  EXPECT_EQ(json["tensors"][0]["worst"]["ratio"], "Infinity");
  EXPECT_EQ(json["tensors"][1]["shape"], (std::vector<int>{2, 3}));
  EXPECT_EQ(json["tensors"][1]["reason"], "ok");
  EXPECT_EQ(json["tensors"][1]["checked"], 6);
  ASSERT_EQ(json["blame"].size(), 1u);
  EXPECT_EQ(json["blame"][0]["op"], "square_off");

  const auto passed = nlohmann::json::parse(to_json(gradcheck([](Var<double> x) { return exp(x); }, {{2}})));
  EXPECT_EQ(passed["passed"], true);
  EXPECT_TRUE(passed["blame"].empty());
  EXPECT_NEAR(passed["tensors"][0]["worst"]["analytic"].get<double>(),
              passed["tensors"][0]["worst"]["numeric"].get<double>(), 1e-6);
}

TEST(GradcheckReports, NameTheOpToBlame) {
  const auto f = [](Var<double> x) { return sum(square_off_at(2, 1e-2)(tanh(x)) * x); };
  const GradcheckReport report = gradcheck(f, {{5}});
  ASSERT_EQ(report.blame.size(), 1u) << report;
  EXPECT_EQ(report.blame[0].op, "square_off");
  EXPECT_EQ(report.blame[0].worst.place, (Shape{2}));
  EXPECT_NE(to_string(report).find("to blame: square_off, argument "), std::string::npos) << report;
  EXPECT_TRUE(gradcheck(f, {{5}}, {.blame = false}).blame.empty());
}

}  // namespace
}  // namespace xtape::gradcheck_functions_test
