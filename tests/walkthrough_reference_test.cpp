// The NumPy walk-throughs of multi-head attention, step by step: projections, split into heads, weights, heads side by
// side, output projection. Their weights multiply on the right (x w), those of the layer are PyTorch's (x weight^T).

#include <array>
#include <xtensor/xview.hpp>

#include "reference_case.hpp"

namespace xtape::walkthrough_reference_test {
namespace {

class WalkthroughReference : public testing::TestWithParam<const char*> {
 protected:
  using Array = xt::xarray<double>;
  ReferenceFile file{GetParam()};
  Tape<double> tape;
  std::size_t heads = file.number("num_heads");
  Attend<double> attend{.causal = std::string(GetParam()).ends_with("causal")};

  Array input() {
    const Array x = file.array<double>("x");
    return x.dimension() == 3 ? x : in_a_batch(x);
  }
  /// The first walk-through has no batch axis.
  static Array in_a_batch(Array x) {
    std::vector<std::size_t> shape(x.shape().begin(), x.shape().end());
    shape.insert(shape.begin(), 1);
    return x.reshape(shape);
  }
  void expect(const std::string& name, Var<double> x) {
    const Array expected = file.array<double>(name);
    const bool batched = expected.dimension() == x.shape().rank();
    EXPECT_TRUE(near(x.value(), batched ? expected : in_a_batch(expected), tolerance::reference)) << name;
  }
  /// x w (+ b), where the walk-through has biases.
  Var<double> project(Var<double> x, const std::string& which) {
    const Var<double> y = matmul(x, tape.input(file.array<double>("w_" + which)));
    return file.contains("b_" + which) ? y + tape.input(file.array<double>("b_" + which)) : y;
  }
  Var<double> in_heads(Var<double> x) const {
    const Shape s = x.shape();
    return transpose(reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
  }
};

TEST_P(WalkthroughReference, IsMetByOpsStepByStep) {
  const Var<double> x = tape.input(input());
  const Var<double> q = project(x, "q"), k = project(x, "k"), v = project(x, "v");
  for (const auto& [name, projection] : {std::pair{"q_heads", q}, std::pair{"k_heads", k}, std::pair{"v_heads", v}})
    if (file.contains(name)) expect(name, in_heads(projection));
  const auto result = attention_with_weights(q, k, v, heads, attend);
  expect("weights", result.weights);
  expect("concat", result.output);
  expect("output", project(result.output, "o"));
  file.expect_all_read();
}

TEST_P(WalkthroughReference, IsMetByTheLayer) {
  const Array x = input();
  const std::size_t width = x.shape().back();
  Rng rng(1);
  MultiHeadAttention<double> layer(width, heads, rng, {.bias = file.contains("b_q")});
  const std::array parts = {"q", "k", "v"};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Array w = file.array<double>(std::string("w_") + parts[i]);
    xt::view(layer.in_proj_weight.write(), xt::range(i * width, (i + 1) * width)) = xt::transpose(w);
    if (layer.in_proj_bias)
      xt::view(layer.in_proj_bias->write(), xt::range(i * width, (i + 1) * width)) =
          file.array<double>(std::string("b_") + parts[i]);
  }
  const Array w_o = file.array<double>("w_o");
  layer.out_proj.weight.write() = xt::transpose(w_o);
  if (layer.out_proj.bias) layer.out_proj.bias->write() = file.array<double>("b_o");

  const Var<double> input = tape.input(x);
  expect("output", layer(input, attend));
  const auto result = layer.with_weights(input, input, input, attend);
  expect("output", result.output);
  expect("weights", result.weights);
}

INSTANTIATE_TEST_SUITE_P(Cases, WalkthroughReference,
                         testing::Values("walkthrough_five_steps", "walkthrough_batched", "walkthrough_seven_steps",
                                         "walkthrough_seven_steps_causal"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace xtape::walkthrough_reference_test
