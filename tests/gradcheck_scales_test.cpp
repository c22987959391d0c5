// The gradient checker raises no false alarm at inputs and outputs of other sizes than 1, for every op.

#include <set>

#include "op_cases/table.hpp"
#include "support.hpp"

namespace xtape::gradcheck_scales_test {
namespace {

/// Checks every row of the table (a fifth of them under AddressSanitizer) with its inputs multiplied by `scale` and its
/// output offset.
void check_every_op(double scale, double offset, const std::set<std::string>& overflowing = {}) {
#ifdef __SANITIZE_ADDRESS__
  constexpr std::size_t stride = 5;
#else
  constexpr std::size_t stride = 1;
#endif
  std::size_t elements = 0, inconclusive = 0, number = 0;
  for (const OpCase& row : op_cases::table()) {
    if (number++ % stride != 0 || overflowing.contains(row.name)) continue;
    SCOPED_TRACE(to_string(row));
    auto inputs = op_cases::inputs_of(row, 0);
    for (auto& x : inputs) x *= scale;
    const auto f = [&](Tape<double>&, auto... x) { return row.op.in_double(std::vector<Var<double>>{x...}) + offset; };
    const GradcheckReport report = gradcheck_at(f, inputs);
    EXPECT_TRUE(report) << report;
    for (const TensorReport& tensor : report.tensors) {
      elements += tensor.checked;
      inconclusive += tensor.inconclusive;
    }
  }
  EXPECT_GT(elements, 50'000U / stride / 2);
  EXPECT_LT(10'000 * inconclusive, elements);
}

TEST(GradcheckScales, SmallInputs) { check_every_op(1e-6, 0); }

TEST(GradcheckScales, LargeInputs) { check_every_op(1e6, 0, {"exp", "pow"}); }

TEST(GradcheckScales, OutputsFarFromZero) { check_every_op(1, 1e6); }

TEST(GradcheckScales, AnOutputBeyondFiniteIsReportedAsSuch) {
  const auto report = gradcheck_at([](Var<double> x) { return exp(x); }, {xt::xarray<double>{1, 1e6}});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.tensors[0].reason, Reason::non_finite) << report;
}

/// Attention at scores of 1e12 chooses one key, and what its tiled backward gives for queries and keys is rounding.
auto attend(double factor) {
  return [factor](Var<double> q, Var<double> k, Var<double> v) {
    const Var<double> y = attention(q, k, v, 1, {.kernel = AttentionKernel::tiled});
    const Var<double> z = y.tape().output("scaled", y.shape(), y);
    set_each(z, y, [](double v) { return v; });
    y.tape().on_backward(z, [=] {
      for (std::size_t i = 0; i < y.size(); ++i) y.grad().data()[i] += factor * z.grad().data()[i];
    });
    return z;
  };
}

TEST(GradcheckScales, RoundingInABackwardIsNoFault) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<xt::xarray<double>> at;
    for (std::uint64_t i = 0; i < 3; ++i) at.push_back(random_array<double>({1, 5, 3}, 10 * seed + i, 1e6));
    const auto right = gradcheck_at(attend(1), at);
    EXPECT_TRUE(right) << right;
    // Nor is it a place to hide.
    const auto wrong = gradcheck_at(attend(1.001), at);
    EXPECT_FALSE(wrong) << wrong;
    EXPECT_EQ(wrong.tensors[0].name, "input 2") << wrong;
  }
}

}  // namespace
}  // namespace xtape::gradcheck_scales_test
