// The errors of elementwise functions in float, in units of the last place, against double over inputs that lie as
// dense as the floats do: their bit patterns, in steps.

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <xtape/framework/kernels/bias_gelu.hpp>
#include <xtape/framework/kernels/unary.hpp>

#include "support.hpp"

namespace xtape::vector_functions_test {
namespace {

using kernels::Unary;
constexpr double inf = std::numeric_limits<double>::infinity();

/// Floats from low to high, both signs, denormals included; an odd step, so that all mantissas take part.
std::vector<float> floats(double low, double high) {
  std::vector<float> xs;
  for (std::uint32_t bits = 0; bits < 0xff800000u; bits += 2477) {
    const float x = std::bit_cast<float>(bits);
    if (!std::isnan(x) && x >= low && x <= high) xs.push_back(x);
  }
  return xs;
}

/// |got - right| in units of the last place of the float nearest to what is right; denormals count as the least normal.
double ulps(float got, double right) {
  int exponent = 0;
  std::frexp(std::max(std::abs(right), static_cast<double>(std::numeric_limits<float>::min())), &exponent);
  return std::abs(static_cast<double>(got) - right) / std::ldexp(1.0, exponent - 24);
}

std::vector<float> values(Unary function, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  kernels::unary_forward<float>({function}, x.data(), y.data(), x.size());
  return y;
}
std::vector<float> slopes(Unary function, const std::vector<float>& x) {
  std::vector<float> y = values(function, x), ones(x.size(), 1.0f), dx(x.size());
  kernels::unary_backward<float>({function}, x.data(), y.data(), ones.data(), dx.data(), false, x.size());
  return dx;
}

double cumulative(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }
double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }
double gelu_tanh_of(double x) { return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

struct Bound {
  const char* name;
  Unary function;
  double (*right)(double);
  double low, high;  // where it holds
  double most;       // ulp
};
const Bound bounds[] = {
    {"exp", Unary::exp, [](double x) { return std::exp(x); }, -87.3, 88, 2},
    {"tanh", Unary::tanh, [](double x) { return std::tanh(x); }, -inf, inf, 2},
    {"sigmoid", Unary::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -87, inf, 3},
    {"gelu", Unary::gelu, [](double x) { return x * cumulative(x); }, -12.9, 1e38, 7},
    // The exponent is a rounded cubic of x, whose rounding counts exponent-fold.
    {"gelu_tanh", Unary::gelu_tanh, gelu_tanh_of, -2, 1e38, 8},
    {"gelu_tanh far below 0", Unary::gelu_tanh, gelu_tanh_of, -9, -2, 150},
};

TEST(VectorFunctions, StayWithinTheirUlps) {
  for (const Bound& bound : bounds) {
    const std::vector<float> x = floats(bound.low, bound.high), y = values(bound.function, x);
    double worst = 0;
    float at = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (const double error = ulps(y[i], bound.right(static_cast<double>(x[i]))); !(error <= worst)) {
        worst = error;
        at = x[i];
      }
    EXPECT_LE(worst, bound.most) << bound.name << " at " << at;
    EXPECT_GT(worst, bound.most / 3) << bound.name << ": the bound is looser than it need be";
    EXPECT_GT(x.size(), 5000U);
  }
}

// A slope passes through 0, so it is its absolute error that counts.
TEST(VectorFunctions, SlopesOfGeluStayWithinFourRoundingsOfOne) {
  const std::vector<float> x = floats(-inf, inf), exact = slopes(Unary::gelu, x), by_tanh = slopes(Unary::gelu_tanh, x);
  double worst = 0, worst_by_tanh = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double v = std::clamp(static_cast<double>(x[i]), -50.0, 50.0);
    const double slope = cumulative(v) + v * density(v);
    worst = std::max(worst, std::abs(static_cast<double>(exact[i]) - slope));
    const double c = 2 * std::sqrt(2 / M_PI), s = 1 / (1 + std::exp(-c * (v + 0.044715 * v * v * v)));
    const double slope_by_tanh = s + v * s * (1 - s) * c * (1 + 3 * 0.044715 * v * v);
    worst_by_tanh = std::max(worst_by_tanh, std::abs(static_cast<double>(by_tanh[i]) - slope_by_tanh));
  }
  EXPECT_LE(worst, 4 * 0x1p-24);
  EXPECT_LE(worst_by_tanh, 8 * 0x1p-24);
  EXPECT_GT(worst, 0x1p-24);
}

TEST(VectorFunctions, TakeTheEndsOfTheRange) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf(""), tiny = 1e-40f;
  const std::vector<float> x = {nan, infinity, -infinity, -0.0f, 0.0f, tiny, -tiny, 3e38f, -3e38f};
  const auto expect = [&](const char* name, const std::vector<float>& got, const std::vector<float>& right) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(right[i])) {
        EXPECT_TRUE(std::isnan(got[i])) << name << " of " << x[i] << " is " << got[i];
      } else {
        EXPECT_EQ(got[i], right[i]) << name << " of " << x[i];
        EXPECT_EQ(std::signbit(got[i]), std::signbit(right[i])) << name << " of " << x[i];
      }
    }
  };
  expect("exp", values(Unary::exp, x), {nan, infinity, 0, 1, 1, 1, 1, infinity, 0});
  expect("tanh", values(Unary::tanh, x), {nan, 1, -1, -0.0f, 0, tiny, -tiny, 1, -1});
  expect("sigmoid", values(Unary::sigmoid, x), {nan, 1, 0, .5f, .5f, .5f, .5f, 1, 0});
  for (const auto& [name, function] : {std::pair("gelu", Unary::gelu), std::pair("gelu_tanh", Unary::gelu_tanh)}) {
    expect(name, values(function, x), {nan, infinity, nan, -0.0f, 0, tiny / 2, -tiny / 2, 3e38f, -0.0f});
    expect(name, slopes(function, x), {nan, 1, 0, .5f, .5f, .5f, .5f, 1, 0});
  }
}

// One exponential gives both.
TEST(VectorFunctions, GeluOfABlockIsGeluToTheLastBit) {
  constexpr std::size_t rows = 5, columns = 19, stride = 23, n = rows * stride;
  const xt::xarray<float> h = random_array<float>({n}, 1);
  for (const auto& [form, function] :
       {std::pair(kernels::GeluForm::exact, Unary::gelu), std::pair(kernels::GeluForm::by_tanh, Unary::gelu_tanh)}) {
    const std::vector<float> x(h.begin(), h.end());
    std::vector<float> y = x, slope = x, expected_y = values(function, x), expected_slope = slopes(function, x);
    for (std::size_t i = 0; i < n; ++i)
      if (i % stride >= columns) expected_y[i] = expected_slope[i] = x[i];
    kernels::gelu_of_block(form, rows, columns, stride, slope.data(), y.data(), slope.data());
    EXPECT_EQ(y, expected_y);
    EXPECT_EQ(slope, expected_slope);
  }
}

}  // namespace
}  // namespace xtape::vector_functions_test
