// Every parameter of the library's layers and models trains, and what does not is named (the rest of case O24).

#include "behaviour.hpp"

namespace xtape::gradient_coverage_test {
namespace {

TEST(GradientCoverage, IsASentence) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    ParameterList<T> list;
    for (const char* name : {"w", "dead", "apart", "also_apart", "frozen", "empty"})
      list.emplace_back(name, Parameter<T>(Shape{name == std::string("empty") ? 0U : 2U}));
    EXPECT_EQ(to_string(gradient_coverage(ParameterList<T>{})), "Gradients reached 0 of 0 parameters.");
    list[0].parameter.grad()(1) = -1;
    list[1].parameter.grad();
    list[4].parameter.freeze();
    list[5].parameter.grad();
    const GradientCoverage coverage = gradient_coverage(list);
    EXPECT_EQ(to_string(coverage),
              "Gradients reached 2 of 6 parameters; they are 0 everywhere in dead; none came to apart, also_apart; "
              "frozen: frozen.");
    EXPECT_FALSE(coverage.complete());
    list[1].parameter.freeze();
    list[2].parameter.grad()(0) = std::numeric_limits<T>::quiet_NaN();
    list[3].parameter.grad()(0) = 1;
    EXPECT_TRUE(gradient_coverage(list).complete());
  });
}

/// Checks that one backward of a random projection of f's output reaches every parameter of the module.
template <class T, class Module, class Forward>
void expect_complete(const char* what, Module& module, Forward forward) {
  SCOPED_TRACE(what);
  const auto list = parameters<T>(module);
  Tape<T> tape;
  const Var<T> y = forward(tape);
  tape.backward(y, random_array<T>(y.shape(), 5));
  const GradientCoverage coverage = gradient_coverage(list);
  EXPECT_TRUE(coverage.complete()) << to_string(coverage);
  EXPECT_EQ(coverage.reached.size(), list.size());
}

TEST(Behaviour, O24_EveryParameterOfEveryLayerTrains) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Rng rng(1);
    const auto check = [&](const char* what, auto module) {
      expect_complete<T>(what, module, [&](Tape<T>& tape) {
        return module(tape.input(random_array<T>({2, 5, 8}, 3)));
      });
    };
    check("Linear", Linear<T>(8, 3, rng));
    check("LayerNorm", LayerNorm<T>(8));
    check("RmsNorm", RmsNorm<T>(8));
    check("LearnedPositions", LearnedPositions<T>(5, 8, rng));
    check("MultiHeadAttention", MultiHeadAttention<T>(8, 2, rng));
    check("shared heads, rotary", MultiHeadAttention<T>(8, 2, rng, {.kv_heads = 1, .rope = RopeOptions{}}));
    for (const Activation activation : {Activation::relu, Activation::gelu})
      check("FeedForward", FeedForward<T>(8, 16, rng, {.activation = activation, .dropout = .1}));
    check("GatedFeedForward", GatedFeedForward<T>(8, 16, rng));
    for (const Norm norm : {Norm::pre, Norm::post})
      for (const bool bias : {false, true})
        check("TransformerEncoder",
              TransformerEncoder<T>(8, 2, rng, {.block = {.norm = norm, .dropout = .1, .bias = bias}}));
    MultiHeadAttention<T> cross(8, 2, rng, {.key_width = 6, .value_width = 4});
    expect_complete<T>("cross-attention", cross, [&](Tape<T>& tape) {
      const auto input = [&](std::size_t time, std::size_t width) {
        return tape.input(random_array<T>({2, time, width}, width));
      };
      return cross(input(3, 8), input(5, 6), input(5, 4));
    });
  });
}

TEST(Behaviour, O24_EveryParameterOfEveryModelTrains) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const xt::xarray<int> source = {{1, 4, 2, 0, 3}, {0, 3, 1, 1, 2}}, target = {{0, 1, 2, 3}, {4, 3, 2, 1}};
    for (const Norm norm : {Norm::pre, Norm::post})
      for (const bool tied : {false, true}) {
        Rng rng(1);
        const TransformerBlockOptions block{.norm = norm, .dropout = .1};
        TransformerLm<T> lm(
            {.vocabulary = 5, .length = 5, .width = 8, .heads = 2, .block = block, .tie_embeddings = tied}, rng);
        expect_complete<T>("TransformerLm", lm, [&](Tape<T>& tape) { return lm(tape, source); });
        EncoderDecoder<T> translator({.source_vocabulary = 5,
                                      .target_vocabulary = 5,
                                      .length = 5,
                                      .width = 8,
                                      .heads = 2,
                                      .block = block,
                                      .tie_embeddings = tied},
                                     rng);
        expect_complete<T>("EncoderDecoder", translator,
                           [&](Tape<T>& tape) { return translator(tape, source, target); });
      }
  });
}

TEST(Behaviour, O24_WhatIsFrozenIsListedApart) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Rng rng(1);
    TransformerLm<T> model({.vocabulary = 5, .length = 4, .width = 8, .heads = 2, .layers = 2}, rng);
    auto list = parameters<T>(model);
    for (auto& [name, parameter] : list)
      if (name.starts_with("blocks.0.") || name.starts_with("position")) parameter.freeze();
    list.emplace_back("forgotten", Parameter<T>(Shape{3}));
    Tape<T> tape;
    const xt::xarray<int> tokens = {{0, 1, 2, 3}};
    tape.backward(cross_entropy(model(tape, tokens), tokens));
    const GradientCoverage coverage = gradient_coverage(list);
    EXPECT_EQ(coverage.none, std::vector<std::string>{"forgotten"});
    EXPECT_TRUE(coverage.zero.empty());
    EXPECT_EQ(coverage.frozen.size(), 13U);
    EXPECT_EQ(coverage.frozen.front(), "position_embedding.weight");
    EXPECT_EQ(coverage.reached.size() + coverage.frozen.size() + 1, list.size());
    AdamW<T> optimizer(list, {.weight_decay = .5});
    std::vector<xt::xarray<T>> before;
    for (const auto& entry : list) before.push_back(values_of(entry.parameter));
    optimizer.step();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const bool moves = std::count(coverage.reached.begin(), coverage.reached.end(), list[i].name) > 0;
      EXPECT_EQ(values_of(list[i].parameter) == before[i], !moves) << list[i].name;
    }
  });
}

}  // namespace
}  // namespace xtape::gradient_coverage_test
