#include "behaviour.hpp"

namespace xtape::parameter_list_test {

/// A module with every kind of member that visit may name.
template <class T>
struct EveryMember {
  Parameter<T> scale{{1}, Role::gain};
  Linear<T> linear;
  std::vector<Linear<T>> layers;
  std::vector<Parameter<T>> loose;
  std::optional<Parameter<T>> absent, present;
  std::optional<Linear<T>> absent_layer, present_layer;
  std::vector<std::vector<Parameter<T>>> nested;

  explicit EveryMember(Rng& rng) : linear(2, 3, rng) {
    for (int i = 0; i < 2; ++i) layers.emplace_back(2, 2, rng, LinearOptions{.bias = false});
    for (int i = 0; i < 2; ++i) loose.emplace_back(Shape{4});
    present.emplace(Shape{5});
    present_layer.emplace(1, 1, rng);
    nested.emplace_back().emplace_back(Shape{6});
  }
  void visit(auto&& f) {
    f("scale", scale);
    f("linear", linear);
    f("layers", layers);
    f("loose", loose);
    f("absent", absent), f("present", present);
    f("absent_layer", absent_layer), f("present_layer", present_layer);
    f("nested", nested);
  }
};

namespace {

template <class T>
std::vector<std::string> names(const ParameterList<T>& list) {
  std::vector<std::string> result;
  for (const auto& entry : list) result.push_back(entry.name);
  return result;
}

TEST(ParameterList, NamesFollowTheMembers) {
  Rng rng(1);
  EveryMember<float> module(rng);
  const auto list = parameters<float>(module);
  EXPECT_EQ(names(list), (std::vector<std::string>{"scale", "linear.weight", "linear.bias", "layers.0.weight",
                                                   "layers.1.weight", "loose.0", "loose.1", "present",
                                                   "present_layer.weight", "present_layer.bias", "nested.0.0"}));
  EXPECT_EQ(count(list), 1U + 6 + 3 + 4 + 4 + 4 + 4 + 5 + 1 + 1 + 6);
}

TEST(ParameterList, AParameterAloneHasNoName) {
  Parameter<float> p({2});
  const auto list = parameters<float>(p);
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].name, "");
}

TEST(ParameterList, AVectorOfModulesIsAModule) {
  Rng rng(2);
  std::vector<Linear<double>> layers;
  layers.emplace_back(1, 1, rng), layers.emplace_back(1, 1, rng, LinearOptions{.bias = false});
  EXPECT_EQ(names(parameters<double>(layers)), (std::vector<std::string>{"0.weight", "0.bias", "1.weight"}));
}

TEST(ParameterList, EntriesSurviveMovesOfTheModule) {
  Rng rng(3);
  auto module = std::make_unique<EveryMember<float>>(rng);
  auto list = parameters<float>(*module);
  EveryMember<float> moved = std::move(*module);
  module.reset();
  for (auto& entry : list) fill(entry.parameter, 3.0F);
  EXPECT_EQ(values_of(moved.linear.bias.value()), (xt::xarray<float>{3, 3, 3}));
  EXPECT_TRUE(list[0].parameter.is(moved.scale));

  std::vector<Linear<float>> grown;  // a vector that moves its elements as it grows
  grown.emplace_back(1, 1, rng);
  auto early = parameters<float>(grown);
  for (int i = 0; i < 10; ++i) grown.emplace_back(1, 1, rng);
  EXPECT_TRUE(early[0].parameter.is(grown[0].weight));
}

TEST(ParameterList, CopiesOfAListNameTheSameParameters) {
  Parameter<float> p({2});
  const auto list = parameters<float>(p);
  auto copy = list;
  fill(copy[0].parameter, 4.0F);
  EXPECT_EQ(values_of(p), (xt::xarray<float>{4, 4}));
  copy = ParameterList<float>(list.begin(), list.end());
  EXPECT_TRUE(copy[0].parameter.is(p));
}

struct TiedTwice {
  Parameter<float> first{{2, 3}}, second = first.share();
  std::vector<Parameter<float>> more;
  TiedTwice() { more.push_back(second.share()); }
  void visit(auto&& f) { f("first", first), f("second", second), f("more", more); }
};

TEST(ParameterList, ATiedParameterIsListedOnceUnderItsFirstName) {
  TiedTwice tied;
  const auto list = parameters<float>(tied);
  EXPECT_EQ(names(list), std::vector<std::string>{"first"});
  EXPECT_EQ(count(list), 6U);
  tied.second = Parameter<float>({1});  // untied again
  EXPECT_EQ(names(parameters<float>(tied)), (std::vector<std::string>{"first", "second"}));
}

TEST(ParameterList, ZeroGradForgetsEveryGradient) {
  Rng rng(4);
  Linear<double> layer(2, 2, rng);
  auto list = parameters<double>(layer);
  Tape<double> tape;
  const auto backward = [&] {
    tape.clear();
    tape.backward(sum(layer(tape.input(xt::xarray<double>{{1, 2}}))));
  };
  backward();
  const xt::xarray<double> once = layer.weight.grad();
  backward();
  EXPECT_EQ(xt::xarray<double>(layer.weight.grad()), xt::xarray<double>(2 * once));  // adds
  zero_grad(list);
  for (const auto& entry : list) EXPECT_FALSE(entry.parameter.has_grad()) << entry.name;
  backward();
  EXPECT_EQ(xt::xarray<double>(layer.weight.grad()), once);
}

TEST(ParameterList, NamesWhatReceivedNoGradient) {
  Rng rng(5);
  MultiHeadAttention<double> used(4, 2, rng);
  auto list = parameters<double>(used);
  list.emplace_back("unused", Parameter<double>(Shape{3}));
  EXPECT_EQ(names_without_grad(list).size(), list.size());
  Tape<double> tape;
  tape.backward(sum(used(tape.input(random_array<double>({1, 2, 4}, 1)))));
  EXPECT_EQ(names_without_grad(list), std::vector<std::string>{"unused"});
}

TEST(ParameterList, NamesAreThoseOfPyTorch) {
  Rng rng(5);
  TransformerLm<float> model({.vocabulary = 3, .length = 2, .width = 4, .heads = 2, .layers = 1}, rng);
  EXPECT_EQ(names(parameters<float>(model)),
            (std::vector<std::string>{
                "token_embedding.weight", "position_embedding.weight", "blocks.0.self_attn.in_proj_weight",
                "blocks.0.self_attn.in_proj_bias", "blocks.0.self_attn.out_proj.weight",
                "blocks.0.self_attn.out_proj.bias", "blocks.0.linear1.weight", "blocks.0.linear1.bias",
                "blocks.0.linear2.weight", "blocks.0.linear2.bias", "blocks.0.norm1.weight", "blocks.0.norm1.bias",
                "blocks.0.norm2.weight", "blocks.0.norm2.bias", "norm.weight", "norm.bias", "head.weight"}));
}

TEST(ParameterList, WithoutBiasesNeitherLinearLayersNorNormsHaveOne) {
  Rng rng(5);
  const TransformerBlockOptions block = {.bias = false};
  const auto none = [](const ParameterList<float>& list) {
    for (const auto& [name, parameter] : list)
      if (name.ends_with("bias") || parameter.role() == Role::bias || parameter.size() == 0) return false;
    return true;
  };
  TransformerLm<float> model(
      {.vocabulary = 3, .length = 2, .width = 4, .heads = 2, .layers = 1, .block = block, .tie_embeddings = true}, rng);
  EXPECT_EQ(names(parameters<float>(model)),
            (std::vector<std::string>{"token_embedding.weight", "position_embedding.weight",
                                      "blocks.0.self_attn.in_proj_weight", "blocks.0.self_attn.out_proj.weight",
                                      "blocks.0.linear1.weight", "blocks.0.linear2.weight", "blocks.0.norm1.weight",
                                      "blocks.0.norm2.weight", "norm.weight"}));
  TransformerEncoder<float> encoder(4, 2, rng, {.layers = 1, .block = block});
  TransformerDecoder<float> decoder(4, 2, rng, {.layers = 1, .block = block});
  EXPECT_TRUE(none(parameters<float>(encoder)));
  EXPECT_TRUE(none(parameters<float>(decoder)));
}

TEST(ParameterList, ABlockOfAttentionAloneHasNeitherFeedForwardNorNorm2) {
  Rng rng(5);
  TransformerBlock<float> block(4, 2, rng, {.attention_only = true});
  EXPECT_EQ(names(parameters<float>(block)),
            (std::vector<std::string>{"self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight",
                                      "self_attn.out_proj.bias", "norm1.weight", "norm1.bias"}));
}

}  // namespace
}  // namespace xtape::parameter_list_test
