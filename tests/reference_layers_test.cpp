// Each layer against PyTorch's module of the same parameters: output, attention weights, and the gradient of every
// input and parameter; in double, and in float against the same double values.

#include "reference_case.hpp"

namespace xtape::reference_layers_test {
namespace {

using Names = testing::TestWithParam<const char*>;
constexpr auto name_of_case = [](const auto& info) { return std::string(info.param); };

template <class T>
MultiHeadAttention<T> attention_layer(ReferenceCase<T>& c, Var<T> query, Var<T> key, Var<T> value) {
  Rng rng(1);
  MultiHeadAttention<T> layer(
      query.shape().back(), c.file.number("num_heads"), rng,
      {.bias = c.file.flag("bias"), .key_width = key.shape().back(), .value_width = value.shape().back()});
  c.load(layer);
  return layer;
}

/// The weights of each head, or their mean over the heads where the file has that.
template <class T>
void expect_weights(ReferenceCase<T>& c, Var<T> weights) {
  const bool per_head = c.file.template array<T>("weights").dimension() == 4;
  c.expect("weights", (per_head ? weights : mean(weights, 1)).value());
}

// ---- self-attention

class MhaSelfReference : public Names {};

template <class T>
void expect_self_attention() {
  ReferenceCase<T> c(MhaSelfReference::GetParam());
  const Var<T> x = c.leaf("query");
  const auto layer = attention_layer(c, x, x, x);
  const auto result = layer.with_weights(x, x, x, c.attend());
  expect_weights(c, result.weights);
  c.expect_output(result.output);
}

template <class T>
void expect_packed_self_attention() {
  ReferenceCase<T> c(MhaSelfReference::GetParam());
  const Var<T> x = c.leaf("query");
  const auto layer = attention_layer(c, x, x, x);
  c.file.leave_out("weights");
  c.expect_output(layer(x, c.attend()));
}

TEST_P(MhaSelfReference, IsMetWithWeights) { expect_self_attention<double>(); }
TEST_P(MhaSelfReference, IsMetWithWeightsInFloat) { expect_self_attention<float>(); }
TEST_P(MhaSelfReference, IsMetByThePackedPath) { expect_packed_self_attention<double>(); }
TEST_P(MhaSelfReference, IsMetByThePackedPathInFloat) { expect_packed_self_attention<float>(); }

INSTANTIATE_TEST_SUITE_P(Cases, MhaSelfReference,
                         testing::Values("mha_self", "mha_self_no_bias", "mha_self_causal", "mha_self_one_head",
                                         "mha_self_one_token", "mha_self_padding", "mha_self_causal_padding",
                                         "mha_self_mean_weights", "mha_self_wide", "mha_self_bool_mask",
                                         "mha_self_additive_mask"),
                         name_of_case);

// ---- cross-attention

class MhaCrossReference : public Names {};

template <class T>
void expect_cross_attention(bool with_weights) {
  ReferenceCase<T> c(MhaCrossReference::GetParam());
  const Var<T> query = c.leaf("query"), key = c.leaf("key"), value = c.leaf("value");
  const auto layer = attention_layer(c, query, key, value);
  if (!with_weights) {
    c.file.leave_out("weights");
    return c.expect_output(layer(query, key, value, c.attend()));
  }
  const auto result = layer.with_weights(query, key, value, c.attend());
  expect_weights(c, result.weights);
  c.expect_output(result.output);
}

TEST_P(MhaCrossReference, IsMetWithWeights) { expect_cross_attention<double>(true); }
TEST_P(MhaCrossReference, IsMetWithWeightsInFloat) { expect_cross_attention<float>(true); }
TEST_P(MhaCrossReference, IsMetWithoutWeights) { expect_cross_attention<double>(false); }
TEST_P(MhaCrossReference, IsMetWithoutWeightsInFloat) { expect_cross_attention<float>(false); }

INSTANTIATE_TEST_SUITE_P(Cases, MhaCrossReference,
                         testing::Values("mha_cross", "mha_cross_padding", "mha_cross_causal_cache",
                                         "mha_cross_kdim_vdim"),
                         name_of_case);

// ---- blocks and small layers

template <class T>
class LayerReference : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(LayerReference, Scalars);

template <class T>
TransformerBlockOptions block_options(ReferenceCase<T>& c, std::size_t hidden) {
  return {.norm = c.file.flag("norm_first") ? Norm::pre : Norm::post,
          .hidden = hidden,
          .activation = c.file.setting("activation") == "relu" ? Activation::relu : Activation::gelu};
}

template <class T>
void expect_encoder_layer(const char* name) {
  ReferenceCase<T> c(name);
  const Var<T> x = c.leaf("input");
  Rng rng(1);
  TransformerBlock<T> block(x.shape().back(), c.file.number("num_heads"), rng, block_options(c, 40));
  c.load(block);
  c.expect_output(block(x, c.attend()));
}

template <class T>
void expect_decoder_layer(const char* name, std::size_t hidden) {
  ReferenceCase<T> c(name);
  const Var<T> x = c.leaf("input"), memory = c.leaf("memory");
  Rng rng(1);
  TransformerDecoderLayer<T> layer(x.shape().back(), c.file.number("num_heads"), rng, block_options(c, hidden));
  c.load(layer);
  Attend<T> cross;
  if (c.file.contains("memory_key_padding_mask"))
    cross.allow_keys = c.tape.mask(c.file.allowed("memory_key_padding_mask"));
  c.expect_output(layer(x, memory, {.causal = true}, cross));
}

TYPED_TEST(LayerReference, PostNormEncoderLayer) { expect_encoder_layer<TypeParam>("encoder_layer_post_norm"); }
TYPED_TEST(LayerReference, CausalPreNormEncoderLayer) { expect_encoder_layer<TypeParam>("encoder_layer_pre_norm"); }
TYPED_TEST(LayerReference, PreNormDecoderLayer) {
  expect_decoder_layer<TypeParam>("decoder_layer_cross_attention", 20);
}
TYPED_TEST(LayerReference, PostNormDecoderLayer) { expect_decoder_layer<TypeParam>("decoder_layer_post_norm", 12); }

TYPED_TEST(LayerReference, Encoder) {
  ReferenceCase<TypeParam> c("encoder");
  const Var<TypeParam> x = c.leaf("input");
  Rng rng(1);
  TransformerEncoder<TypeParam> encoder(8, c.file.number("num_heads"), rng, {.block = block_options(c, 12)});
  c.load(encoder);
  c.expect_output(encoder(x, c.attend()));
}
TYPED_TEST(LayerReference, Decoder) {
  ReferenceCase<TypeParam> c("decoder");
  const Var<TypeParam> x = c.leaf("input"), memory = c.leaf("memory");
  Rng rng(1);
  TransformerDecoder<TypeParam> decoder(8, c.file.number("num_heads"), rng, {.block = block_options(c, 12)});
  c.load(decoder);
  c.expect_output(decoder(x, memory, {.causal = true}));
}
TYPED_TEST(LayerReference, EncoderDecoder) {
  ReferenceCase<TypeParam> c("encoder_decoder");
  Rng rng(1);
  EncoderDecoder<TypeParam> model({.source_vocabulary = c.file.number("source_vocabulary"),
                                   .target_vocabulary = c.file.number("target_vocabulary"),
                                   .length = 16,
                                   .width = c.file.number("width"),
                                   .heads = c.file.number("num_heads"),
                                   .layers = c.file.number("num_layers"),
                                   .block = block_options(c, c.file.number("hidden"))},
                                  rng);
  c.load(model);
  const Mask source_tokens = c.tape.mask(c.file.allowed("key_padding_mask"));
  c.expect_output(model(c.tape, c.file.integers("source"), c.file.integers("target"), source_tokens));
}

TYPED_TEST(LayerReference, Linear) {
  ReferenceCase<TypeParam> c("linear");
  Rng rng(1);
  Linear<TypeParam> layer(5, 4, rng);
  c.load(layer);
  c.expect_output(layer(c.leaf("input")));
}
TYPED_TEST(LayerReference, LayerNorm) {
  ReferenceCase<TypeParam> c("layer_norm");
  LayerNorm<TypeParam> layer(6, c.file.real("eps"));
  c.load(layer);
  c.expect_output(layer(c.leaf("input")));
}
TYPED_TEST(LayerReference, RmsNorm) {
  ReferenceCase<TypeParam> c("rms_norm");
  RmsNorm<TypeParam> layer(6, c.file.real("eps"));
  c.load(layer);
  c.expect_output(layer(c.leaf("input")));
}
TYPED_TEST(LayerReference, GatedFeedForward) {
  ReferenceCase<TypeParam> c("gated_feed_forward");
  Rng rng(1);
  GatedFeedForward<TypeParam> layer(6, 10, rng);
  c.load(layer);
  c.expect_output(layer(c.leaf("input")));
}
TYPED_TEST(LayerReference, EmbeddingWithPaddingIndex) {
  ReferenceCase<TypeParam> c("embedding");
  Rng rng(1);
  Embedding<TypeParam> layer(7, 4, rng, {.padding_index = 0});
  c.load(layer);
  c.expect_output(layer(c.tape, c.file.integers("indices")));
}

}  // namespace
}  // namespace xtape::reference_layers_test
