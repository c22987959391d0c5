// Attention and rotary positions against PyTorch: output and gradients, in double and in float.

#include "reference_case.hpp"

namespace xtape::reference_attention_test {
namespace {

using Names = testing::TestWithParam<const char*>;
constexpr auto name_of_case = [](const auto& info) { return std::string(info.param); };

/// (batch, head, time, width) -> (batch, time, head * width)
template <class T>
Var<T> side_by_side(Var<T> heads) {
  const Shape s = heads.shape();
  return reshape(transpose(heads, {0, 2, 1, 3}), {s[0], s[2], s[1] * s[3]});
}
/// The way back.
template <class T>
Var<T> in_heads(Var<T> x, std::size_t heads) {
  const Shape s = x.shape();
  return transpose(reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
}

class SdpaReference : public Names {};

template <class T>
void expect_attention(bool with_weights) {
  ReferenceCase<T> c(SdpaReference::GetParam());
  const Var<T> q = c.leaf("query"), k = c.leaf("key"), v = c.leaf("value");
  Attend<T> attend = c.attend();
  attend.kv_heads = k.shape()[1];
  if (c.file.contains("bias")) attend.bias = c.leaf("bias");
  if (c.file.has_setting("window") && c.file.number("window") > 0) attend.window = c.file.number("window");
  const std::size_t heads = q.shape()[1];
  const Var<T> a = side_by_side(q), b = side_by_side(k), d = side_by_side(v);
  const Var<T> y =
      with_weights ? attention_with_weights(a, b, d, heads, attend).output : attention(a, b, d, heads, attend);
  c.expect_output(in_heads(y, heads));
}

TEST_P(SdpaReference, IsMet) { expect_attention<double>(false); }
TEST_P(SdpaReference, IsMetInFloat) { expect_attention<float>(false); }
TEST_P(SdpaReference, IsMetWithWeights) { expect_attention<double>(true); }
TEST_P(SdpaReference, IsMetWithWeightsInFloat) { expect_attention<float>(true); }

INSTANTIATE_TEST_SUITE_P(Cases, SdpaReference,
                         testing::Values("sdpa_sharp", "sdpa_large_logits", "sdpa_grouped_query", "sdpa_multi_query",
                                         "sdpa_bias_of_pairs", "sdpa_bias_of_rows", "sdpa_bias_of_heads",
                                         "sdpa_grouped_query_bias_over_heads", "sdpa_window"),
                         name_of_case);

class RopeReference : public Names {};

template <class T>
void expect_rope(bool by_row) {
  ReferenceCase<T> c(RopeReference::GetParam());
  const Var<T> x = c.leaf("input");
  const Shape s = x.shape();
  RopeOptions options{.base = c.file.real("base"),
                      .pairing = c.file.flag("interleaved") ? RopePairing::interleaved : RopePairing::halves};
  const std::size_t first = c.file.number("first_position");
  xt::xarray<std::size_t> positions = zeros_of<std::size_t>({s[0], s[2]});
  for (std::size_t b = 0; b < s[0]; ++b)
    for (std::size_t t = 0; t < s[2]; ++t) positions(b, t) = first + t;
  if (by_row)
    options.positions = c.tape.integers(positions);
  else
    options.first_position = first;
  c.expect_output(in_heads(rope(side_by_side(x), s[1], options), s[1]));
}

TEST_P(RopeReference, IsMet) { expect_rope<double>(false); }
TEST_P(RopeReference, IsMetInFloat) { expect_rope<float>(false); }
TEST_P(RopeReference, IsMetWithPositionsByRow) { expect_rope<double>(true); }
TEST_P(RopeReference, IsMetWithPositionsByRowInFloat) { expect_rope<float>(true); }

INSTANTIATE_TEST_SUITE_P(Cases, RopeReference, testing::Values("rope_halves", "rope_interleaved"), name_of_case);

}  // namespace
}  // namespace xtape::reference_attention_test
