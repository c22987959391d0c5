// Each op against the values and gradients that PyTorch computed: in double, and in float against the same values.

#include "reference_case.hpp"

namespace xtape::reference_ops_test {
namespace {

template <class T>
class OpReference : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(OpReference, Scalars);

template <class T, class Op>
void expect_unary(const char* name, Op op) {
  ReferenceCase<T> c(name);
  c.expect_output(op(c.leaf("input")));
}

template <class T, class Op>
void expect_binary(const char* name, Op op) {
  ReferenceCase<T> c(name);
  const Var<T> left = c.leaf("left"), right = c.leaf("right");
  c.expect_output(op(left, right));
}

template <class T>
void expect_cross_entropy(const char* name, CrossEntropyOptions options = {}) {
  ReferenceCase<T> c(name);
  c.expect_output(cross_entropy(c.leaf("logits"), c.file.integers("targets"), options));
}

template <class T>
void expect_layer_norm(const char* name, double tolerance) {
  ReferenceCase<T> c(name, tolerance);
  const Var<T> x = c.leaf("input"), gain = c.leaf("weight"), bias = c.leaf("bias");
  c.expect_output(layer_norm(x, gain, bias, c.file.real("eps")));
}

TYPED_TEST(OpReference, BatchedMatmul) {
  expect_binary<TypeParam>("matmul_batched", [](auto a, auto b) { return matmul(a, b); });
}
TYPED_TEST(OpReference, BroadcastMatmul) {
  expect_binary<TypeParam>("matmul_broadcast", [](auto a, auto b) { return matmul(a, b); });
}
TYPED_TEST(OpReference, BroadcastSum) {
  expect_binary<TypeParam>("add_broadcast", [](auto a, auto b) { return a + b; });
}
TYPED_TEST(OpReference, BroadcastProduct) {
  expect_binary<TypeParam>("mul_broadcast", [](auto a, auto b) { return a * b; });
}
TYPED_TEST(OpReference, BroadcastQuotient) {
  expect_binary<TypeParam>("div_broadcast", [](auto a, auto b) { return a / b; });
}
TYPED_TEST(OpReference, Linear) {
  ReferenceCase<TypeParam> c("linear");
  const auto x = c.leaf("input"), weight = c.leaf("weight"), bias = c.leaf("bias");
  c.expect_output(linear(x, weight, bias));
}

TYPED_TEST(OpReference, Gelu) {
  expect_unary<TypeParam>("gelu", [](auto x) { return gelu(x); });
}
TYPED_TEST(OpReference, Relu) {
  expect_unary<TypeParam>("relu", [](auto x) { return relu(x); });
}
TYPED_TEST(OpReference, GeluByTanh) {
  expect_unary<TypeParam>("gelu_tanh", [](auto x) { return gelu_tanh(x); });
}
TYPED_TEST(OpReference, Silu) {
  expect_unary<TypeParam>("silu", [](auto x) { return silu(x); });
}
TYPED_TEST(OpReference, Swiglu) {
  ReferenceCase<TypeParam> c("swiglu");
  const auto gate = c.leaf("gate"), up = c.leaf("up");
  c.expect_output(swiglu(gate, up));
}
TYPED_TEST(OpReference, RmsNorm) {
  ReferenceCase<TypeParam> c("rms_norm");
  const auto x = c.leaf("input"), gain = c.leaf("weight");
  c.expect_output(rms_norm(x, gain, c.file.real("eps")));
}
TYPED_TEST(OpReference, Softmax) {
  expect_unary<TypeParam>("softmax", [](auto x) { return softmax(x); });
}
TYPED_TEST(OpReference, LogSoftmax) {
  expect_unary<TypeParam>("log_softmax", [](auto x) { return log_softmax(x); });
}

TYPED_TEST(OpReference, LayerNorm) { expect_layer_norm<TypeParam>("layer_norm", reference_tolerance<TypeParam>); }
// In double alone: float cannot hold the case's inputs, which differ by 1 at 1e4, well enough.
TEST(OpReferenceInDouble, LayerNormOfALargeMean) {
  expect_layer_norm<double>("layer_norm_large_mean", tolerance::reference_large_mean);
}

TYPED_TEST(OpReference, CrossEntropy) { expect_cross_entropy<TypeParam>("cross_entropy"); }
TYPED_TEST(OpReference, CrossEntropyWithIgnoredTargets) {
  expect_cross_entropy<TypeParam>("cross_entropy_ignore", {.ignore_index = -100});
}
TYPED_TEST(OpReference, CrossEntropyWithLabelSmoothing) {
  expect_cross_entropy<TypeParam>("cross_entropy_smoothing", {.label_smoothing = 0.1});
}
TYPED_TEST(OpReference, CrossEntropySummed) {
  expect_cross_entropy<TypeParam>("cross_entropy_sum", {.reduction = Reduction::sum});
}

TYPED_TEST(OpReference, EmbeddingWithPaddingIndex) {
  ReferenceCase<TypeParam> c("embedding");
  c.expect_output(embedding(c.leaf("weight"), c.file.integers("indices"), {.padding_index = 0}));
}

}  // namespace
}  // namespace xtape::reference_ops_test
