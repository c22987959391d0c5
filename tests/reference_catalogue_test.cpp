// The rest of the catalogue against PyTorch: ties, kinks and bounds included. In double, and in float against the same
// values.

#include "reference_case.hpp"

namespace xtape::reference_catalogue_test {
namespace {

template <class T>
class CatalogueReference : public testing::Test {
 public:
  template <class Op>
  static void unary(const char* name, Op op) {
    ReferenceCase<T> c(name);
    c.expect_output(op(c.leaf("input")));
  }
  template <class Op>
  static void binary(const char* name, Op op) {
    ReferenceCase<T> c(name);
    const Var<T> left = c.leaf("left"), right = c.leaf("right");
    c.expect_output(op(left, right));
  }
  template <class Op>
  static void selecting(const char* name, Op op) {
    ReferenceCase<T> c(name);
    c.expect_output(op(c.leaf("input"), c.file.integers("indices")));
  }
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(CatalogueReference, Scalars);

TYPED_TEST(CatalogueReference, FunctionsOfOneNumber) {
  TestFixture::unary("log1p", [](auto x) { return log1p(x); });
  TestFixture::unary("sqrt", [](auto x) { return sqrt(x); });
  TestFixture::unary("rsqrt", [](auto x) { return rsqrt(x); });
  TestFixture::unary("square", [](auto x) { return square(x); });
  TestFixture::unary("abs", [](auto x) { return abs(x); });
  TestFixture::unary("sin", [](auto x) { return sin(x); });
  TestFixture::unary("cos", [](auto x) { return cos(x); });
  TestFixture::unary("sigmoid", [](auto x) { return sigmoid(x); });
  TestFixture::unary("softplus", [](auto x) { return softplus(x); });
  TestFixture::unary("clamp", [](auto x) { return clamp(x, -0.5, 1); });
}

TYPED_TEST(CatalogueReference, FunctionsOfTwoNumbers) {
  TestFixture::binary("pow", [](auto a, auto b) { return pow(a, b); });
  ReferenceCase<TypeParam> cube("pow_integral");
  cube.expect_output(pow(cube.leaf("left"), 3));
  TestFixture::binary("maximum", [](auto a, auto b) { return maximum(a, b); });
  TestFixture::binary("minimum", [](auto a, auto b) { return minimum(a, b); });
  ReferenceCase<TypeParam> c("where");
  const auto left = c.leaf("left"), right = c.leaf("right");
  const xt::xarray<bool> condition = xt::not_equal(c.file.integers("condition"), 0);
  c.expect_output(where(condition, left, right));
}

TYPED_TEST(CatalogueReference, Reductions) {
  TestFixture::unary("max_all", [](auto x) { return max(x); });
  TestFixture::unary("max_axes", [](auto x) { return max(x, {0, 2}); });
  TestFixture::unary("var_all", [](auto x) { return var(x); });
  TestFixture::unary("mean_axes", [](auto x) { return mean(x, {1, 3}); });
  TestFixture::unary("cumsum", [](auto x) { return cumsum(x, 1); });
}
// In double alone: float cannot hold the deviations of numbers around 100 well enough.
TEST(CatalogueReferenceInDouble, VarianceOfALargeMean) {
  ReferenceCase<double> c("var_axes");
  c.expect_output(var(c.leaf("input"), {0, 2}, true, 0));
}

TYPED_TEST(CatalogueReference, Shapes) {
  TestFixture::binary("stack", [](auto a, auto b) { return stack({a, b}, 1); });
  TestFixture::unary("split", [](auto x) {
    const auto [a, b, c] = split(x, {2, 0, 5}, 1);
    return concat({3 * c, 2 * b, a}, 1);
  });
  TestFixture::unary("pad", [](auto x) { return pad(x, 1, 2, 1, 0.5); });
  TestFixture::unary("flip", [](auto x) { return flip(x, 1); });
  TestFixture::unary("detach", [](auto x) { return detach(sin(x)) * x; });
}

TYPED_TEST(CatalogueReference, Selection) {
  TestFixture::selecting("index_select", [](auto x, const auto& i) { return index_select(x, 1, i); });
  TestFixture::selecting("gather", [](auto x, const auto& i) { return gather(x, 1, i); });
  TestFixture::selecting("one_hot", [](auto x, const auto& i) { return x * one_hot(x.tape(), i, 4); });
}

TYPED_TEST(CatalogueReference, Einsum) {
  for (const char* name : {"einsum_scores", "einsum_bilinear", "einsum_sums"}) {
    SCOPED_TRACE(name);
    ReferenceCase<TypeParam> c(name);
    const std::string pattern = c.file.setting("pattern");
    const auto a = c.leaf("0"), b = c.leaf("1");
    c.expect_output(c.file.contains("2") ? einsum(pattern, a, b, c.leaf("2")) : einsum(pattern, a, b));
  }
}

}  // namespace
}  // namespace xtape::reference_catalogue_test
