// Attention, blocks and a whole model against finite differences in double: every input, weight and bias.

#include "support.hpp"

namespace xtape::layer_gradients_test {
namespace {

using Tape64 = Tape<double>;
using Var64 = Var<double>;

/// Biases that are not 0, gains that are not 1: a gradient that is right only there would show.
template <class Module>
Module shaken(Module module) {
  Rng rng(8);
  for (auto& [name, parameter] : parameters<double>(module))
    for (auto& x : parameter.write()) x += 0.3 * rng.normal();
  return module;
}

MultiHeadAttention<double> attention_layer(bool bias = true) {
  Rng rng(5);
  return shaken(MultiHeadAttention<double>(6, 2, rng, {.bias = bias}));
}

Mask lengths_of(Tape64& tape, std::initializer_list<int> lengths, std::size_t time) {
  return tape.lengths(xt::xarray<int>(xt::adapt(std::vector<int>(lengths))), time);
}

// ---- multi-head attention

TEST(LayerGradients, OfSelfAttention) {
  for (const bool bias : {true, false}) EXPECT_TRUE(gradcheck(attention_layer(bias), {{2, 4, 6}}));
}

TEST(LayerGradients, OfCrossAttention) {
  for (const bool bias : {true, false})
    EXPECT_TRUE(gradcheck(attention_layer(bias), {{2, 3, 6}, {2, 5, 6}, {2, 5, 6}}));
}

TEST(LayerGradients, OfMaskedSelfAttention) {
  auto layer = attention_layer();
  const auto masked = [&](Tape64& tape, Var64 x) {
    return layer(x, {.causal = true,
                     .allow_keys = lengths_of(tape, {4, 2, 0}, 4),
                     .allow_queries = lengths_of(tape, {4, 3, 4}, 4)});
  };
  EXPECT_TRUE(gradcheck(masked, {{3, 4, 6}}, {.parameters = parameters<double>(layer)}));
}

TEST(LayerGradients, OfMaskedCrossAttention) {
  auto layer = attention_layer();
  const auto masked = [&](Tape64& tape, Var64 query, Var64 key, Var64 value) {
    return layer(query, key, value, {.causal = true, .allow_keys = lengths_of(tape, {5, 3}, 5)});
  };
  EXPECT_TRUE(gradcheck(masked, {{2, 3, 6}, {2, 5, 6}, {2, 5, 6}}, {.parameters = parameters<double>(layer)}));
}

TEST(LayerGradients, OfAttentionWeightsAndLogSumExp) {
  auto layer = attention_layer();
  const auto all_outputs = [&](Tape64& tape, Var64 query, Var64 key, Var64 value) {
    const auto result = layer.with_weights(query, key, value, {.allow_keys = lengths_of(tape, {5, 3}, 5)});
    const auto flat = [](Var64 x) { return reshape(x, {x.size()}); };
    return concat({flat(result.output), flat(result.weights), flat(result.log_sum_exp)}, 0);
  };
  EXPECT_TRUE(gradcheck(all_outputs, {{2, 3, 6}, {2, 5, 6}, {2, 5, 6}}, {.parameters = parameters<double>(layer)}));
}

TEST(LayerGradients, OfAttentionWithWidthsOfItsOwn) {
  for (const std::size_t kv_heads : {2, 1}) {
    Rng rng(5);
    const auto layer = [&] {
      return shaken(MultiHeadAttention<double>(6, 2, rng, {.key_width = 5, .value_width = 4, .kv_heads = kv_heads}));
    };
    EXPECT_TRUE(gradcheck(layer(), {{2, 3, 6}, {2, 5, 5}, {2, 5, 4}}));
  }
}

TEST(LayerGradients, OfAttentionWithSharedHeadsAndRotaryPositions) {
  for (const RopePairing pairing : {RopePairing::halves, RopePairing::interleaved}) {
    Rng rng(5);
    auto layer = shaken(
        MultiHeadAttention<double>(8, 4, rng, {.kv_heads = 2, .rope = RopeOptions{.base = 10, .pairing = pairing}}));
    EXPECT_TRUE(gradcheck(layer, {{2, 4, 8}}));
    const auto padded_on_the_left = [&](Tape64& tape, Var64 x) {
      const Mask mask = tape.mask(xt::xarray<bool>{{false, false, true, true}, {true, true, true, true}});
      return layer(x, {.causal = true, .allow_keys = mask}, positions_without_padding(tape, mask));
    };
    EXPECT_TRUE(gradcheck(padded_on_the_left, {{2, 4, 8}}, {.parameters = parameters<double>(layer)}));
  }
}

TEST(LayerGradients, OfABiasUnderEveryMask) {
  auto layer = attention_layer();
  for (const Shape& shape : {Shape{4, 4}, Shape{2, 4, 4}, Shape{1, 2, 4, 4}, Shape{2, 2, 4, 4}, Shape{1, 2, 1, 4}}) {
    const auto biased = [&](Tape64& tape, Var64 x, Var64 bias) {
      const Mask pairs = tape.mask(random_array<double>({4, 4}, 3) < 0.7);
      return layer(
          x, {.causal = true, .allow_keys = lengths_of(tape, {4, 2}, 4), .allow = pairs, .bias = bias, .window = 3});
    };
    const GradcheckReport report = gradcheck(biased, {{2, 4, 6}, shape}, {.parameters = parameters<double>(layer)});
    EXPECT_TRUE(report) << report;
  }
}

// ---- blocks and a whole model

TEST(LayerGradients, OfPreNormAndPostNormBlocks) {
  for (const Norm norm : {Norm::pre, Norm::post})
    for (const bool causal : {false, true}) {
      Rng rng(5);
      for (const bool attention_only : {false, true}) {
        auto block =
            shaken(TransformerBlock<double>(6, 2, rng, {.norm = norm, .hidden = 10, .attention_only = attention_only}));
        const auto f = [&](Var64 x) { return block(x, {.causal = causal}); };
        EXPECT_TRUE(gradcheck(f, {{2, 4, 6}}, {.parameters = parameters<double>(block)}));
      }
    }
}

TransformerLm<double> language_model(Norm norm) {
  Rng rng(5);
  return shaken(TransformerLm<double>(
      {.vocabulary = 5, .length = 4, .width = 6, .heads = 2, .layers = 2, .block = {.norm = norm, .hidden = 8}}, rng));
}
const xt::xarray<int> tokens = {{1, 4, 0, 1}, {3, 3, 2, 0}}, targets = {{4, 0, 1, 2}, {3, -100, 0, 1}};

TEST(LayerGradients, OfATwoLayerLanguageModel) {
  for (const Norm norm : {Norm::pre, Norm::post}) {
    auto model = language_model(norm);
    const auto logits = [&](Tape64& tape) { return model(tape, tokens); };
    EXPECT_TRUE(gradcheck(logits, {}, {.parameters = parameters<double>(model)}));
    const auto loss = [&](Tape64& tape) { return cross_entropy(model(tape, tokens), targets); };
    EXPECT_TRUE(gradcheck(loss, {}, {.parameters = parameters<double>(model)}));
  }
}

TEST(LayerGradients, OfEncodersDecodersAndBoth) {
  Rng rng(5);
  for (const Norm norm : {Norm::pre, Norm::post}) {
    const TransformerStackOptions options{.block = {.norm = norm, .hidden = 5}};
    auto encoder = shaken(TransformerEncoder<double>(4, 2, rng, options));
    EXPECT_TRUE(gradcheck(encoder, {{2, 3, 4}}));
    auto decoder = shaken(TransformerDecoder<double>(4, 2, rng, options));
    const auto causal = [&](Tape64& tape, Var64 x, Var64 memory) {
      return decoder(x, memory, {.causal = true}, {.allow_keys = lengths_of(tape, {4, 2}, 4)});
    };
    EXPECT_TRUE(gradcheck(causal, {{2, 3, 4}, {2, 4, 4}}, {.parameters = parameters<double>(decoder)}));
    for (const bool tied : {false, true}) {
      auto model = shaken(EncoderDecoder<double>({.source_vocabulary = 5,
                                                  .target_vocabulary = 5,
                                                  .length = 4,
                                                  .width = 4,
                                                  .heads = 2,
                                                  .layers = 1,
                                                  .block = options.block,
                                                  .tie_embeddings = tied},
                                                 rng));
      const auto loss = [&](Tape64& tape) {
        const Mask mask = lengths_of(tape, {4, 2}, 4);
        return cross_entropy(model(tape, tokens, tokens, mask, mask), targets);
      };
      EXPECT_TRUE(gradcheck(loss, {}, {.parameters = parameters<double>(model)}));
    }
  }
}

TEST(LayerGradients, OfRmsNormAndGatedFeedForward) {
  Rng rng(5);
  EXPECT_TRUE(gradcheck(shaken(RmsNorm<double>(6)), {{2, 3, 6}}));
  for (const bool bias : {false, true})
    EXPECT_TRUE(gradcheck(shaken(GatedFeedForward<double>(6, 4, rng, {.bias = bias})), {{2, 3, 6}}));
}

TEST(LayerGradients, OfAddedPositions) {
  Rng rng(5);
  EXPECT_TRUE(gradcheck(SinusoidalPositions<double>(5, 4), {{2, 3, 4}}));
  EXPECT_TRUE(gradcheck(LearnedPositions<double>(5, 4, rng), {{2, 3, 4}}));
  LearnedPositions<double> learned(5, 4, rng);
  const auto placed = [&](Tape64& tape, Var64 x) {
    return learned(x, tape.integers(xt::xarray<int>{{0, 0, 1}, {4, 2, 4}}));
  };
  EXPECT_TRUE(gradcheck(placed, {{2, 3, 4}}, {.parameters = parameters<double>(learned)}));
}

// ---- would the check see a fault?

/// x itself with a gradient that is a thousandth too large.
Var64 with_wrong_gradient(Var64 x) {
  Var64 y = x.tape().output("with_wrong_gradient", x.shape(), x);
  set_each(y, x, [](double v) { return v; });
  x.tape().on_backward(y, [x, y] { add_slope(x, y, [](double) { return 1.001; }); });
  return y;
}

TEST(LayerGradients, OfABlockWithOneWrongOpAreRefused) {
  Rng rng(5);
  auto block = shaken(TransformerBlock<double>(6, 2, rng, {.hidden = 10}));
  const auto f = [&](Var64 x) { return block(with_wrong_gradient(block.self_attn(x)) + x); };
  const GradcheckReport report = gradcheck(f, {{2, 4, 6}}, {.parameters = parameters<double>(block)});
  EXPECT_FALSE(report) << report;
}

TEST(AttentionGradients, OfOneMemoryUnderTwoShapes) {
  // x is q as (1, 4, 2) and v as (1, 2, 4): the heads of the two lie crosswise in one gradient.
  for (const bool with_weights : {false, true}) {
    const auto attend = [&](Var<double> x, Var<double> k) {
      const Var<double> v = reshape(x, {1, 2, 4});
      return with_weights ? attention_with_weights(x, k, v, 2).output : attention(x, k, v, 2);
    };
    const GradcheckReport report = gradcheck(attend, {{1, 4, 2}, {1, 2, 2}});
    EXPECT_TRUE(report) << report;
  }
}

TEST(AttentionGradients, OfOneMemoryWhoseHeadsAreShared) {
  const Attend<double> shared{.kv_heads = 1};
  // x is q as (1, 4, 4), two heads of two, and k and v as (1, 8, 2), one head of two.
  const auto all = [&](Var<double> x) {
    const Var<double> k = reshape(x, {1, 8, 2});
    return attention(x, k, k, 2, shared);
  };
  const GradcheckReport of_all = gradcheck(all, {{1, 4, 4}});
  EXPECT_TRUE(of_all) << of_all;
  // x is q, two heads of two, and v of the same shape, one head of four.
  const auto value = [&](Var<double> x, Var<double> k) { return attention_with_weights(x, k, x, 2, shared).output; };
  const GradcheckReport of_value = gradcheck(value, {{1, 4, 4}, {1, 4, 2}});
  EXPECT_TRUE(of_value) << of_value;
  // x is the bias as well.
  const auto bias = [&](Var<double> x) { return attention(x, x, x, 2, {.bias = reshape(x, {4, 4})}); };
  const GradcheckReport of_bias = gradcheck(bias, {{1, 4, 4}});
  EXPECT_TRUE(of_bias) << of_bias;
}

}  // namespace
}  // namespace xtape::layer_gradients_test
