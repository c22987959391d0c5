// Losses against PyTorch, in every reduction. In double, and in float against the same values.

#include "reference_case.hpp"

namespace xtape::reference_losses_test {
namespace {

Reduction reduction_of(const std::string& name) {
  return name == "none" ? Reduction::none : name == "sum" ? Reduction::sum : Reduction::mean;
}

template <class T>
class LossReference : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(LossReference, Scalars);

/// `loss(x, target, reduction)` against the three files of a loss.
template <class T, class Loss>
void expect_loss(const std::vector<const char*>& names, Loss loss) {
  for (const char* name : names) {
    SCOPED_TRACE(name);
    ReferenceCase<T> c(name);
    const bool wants_target = c.file.contains("grad.target");
    const Var<T> x = c.leaf("input"),
                 target = wants_target ? c.leaf("target") : c.tape.input(c.file.template array<T>("target"));
    c.expect_output(loss(x, target, reduction_of(c.file.setting("reduction"))));
  }
}

TYPED_TEST(LossReference, Mse) {
  expect_loss<TypeParam>({"mse_mean", "mse_sum", "mse_none"}, [](auto x, auto t, Reduction r) { return mse(x, t, r); });
  ReferenceCase<TypeParam> c("mse");
  const auto x = c.leaf("input"), target = c.leaf("target");
  c.expect_output(mse(x, target));
}
TYPED_TEST(LossReference, L1) {
  expect_loss<TypeParam>({"l1_mean", "l1_sum", "l1_none"}, [](auto x, auto t, Reduction r) { return l1(x, t, r); });
}
TYPED_TEST(LossReference, BceWithLogits) {
  expect_loss<TypeParam>({"bce_with_logits_mean", "bce_with_logits_sum", "bce_with_logits_none"},
                         [](auto x, auto t, Reduction r) { return bce_with_logits(x, t, r); });
}
TYPED_TEST(LossReference, KlDiv) {
  expect_loss<TypeParam>({"kl_div_mean", "kl_div_sum", "kl_div_none"},
                         [](auto x, auto t, Reduction r) { return kl_div(x, t, r); });
}

TYPED_TEST(LossReference, CrossEntropy) {
  for (const char* name :
       {"cross_entropy_none", "cross_entropy_weights", "cross_entropy_weights_sum", "cross_entropy_weights_smoothing",
        "cross_entropy_weights_smoothing_none", "cross_entropy_ignore_a_class", "cross_entropy_ignore_far_away",
        "cross_entropy_huge_logits"}) {
    SCOPED_TRACE(name);
    ReferenceCase<TypeParam> c(name);
    std::vector<double> weights;
    if (c.file.contains("class_weights")) {
      const auto array = c.file.template array<double>("class_weights");
      weights.assign(array.begin(), array.end());
    }
    const CrossEntropyOptions options{
        .ignore_index = c.file.has_setting("ignore_index") ? std::stol(c.file.setting("ignore_index")) : -100,
        .label_smoothing = c.file.has_setting("label_smoothing") ? c.file.real("label_smoothing") : 0,
        .reduction = c.file.has_setting("reduction") ? reduction_of(c.file.setting("reduction")) : Reduction::mean,
        .class_weights = weights};
    c.expect_output(cross_entropy(c.leaf("logits"), c.file.integers("targets"), options));
  }
}

}  // namespace
}  // namespace xtape::reference_losses_test
