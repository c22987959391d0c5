// Attention, blocks and a whole model against finite differences in double: every input, weight and bias.

#include "support.hpp"

namespace xtape {
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

// ---- blocks and a whole model

TEST(LayerGradients, OfPreNormAndPostNormBlocks) {
  for (const Norm norm : {Norm::pre, Norm::post})
    for (const bool causal : {false, true}) {
      Rng rng(5);
      for (const bool attention_only : {false, true}) {
        auto block = shaken(
            TransformerBlock<double>(6, 2, rng, {.norm = norm, .hidden = 10, .attention_only = attention_only}));
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

// ---- would the check see a fault?

/// x itself with a gradient that is a thousandth too large.
Var64 with_wrong_gradient(Var64 x) {
  Var64 y = x.tape().output("with_wrong_gradient", x.shape(), x);
  xt::noalias(y.value()) = x.value();
  x.tape().on_backward(y, [x, y] { xt::noalias(x.grad()) += 1.001 * y.grad(); });
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

}  // namespace
}  // namespace xtape
