// The path of a layer in messages and on the record.

#include "support.hpp"

namespace xtape::layer_name_test {
namespace {

struct Model {
  std::vector<TransformerBlock<double>> blocks;
  Linear<double> head;
  explicit Model(Rng& rng) : head(8, 3, rng) {
    blocks.emplace_back(8, 2, rng);
    blocks.emplace_back(8, 2, rng);
    name_layers(*this);
  }
  void visit(auto&& f) {
    f("blocks", blocks);
    f("head", head);
  }
};

struct Outer {
  Model inner;
  void visit(auto&& f) { f("inner", inner); }
};

TEST(LayerName, StandsBeforeTheMessageOfAnOp) {
  Rng rng(1);
  const Model model(rng);
  Tape<double> tape;
  const Var<double> x = tape.input(random_array<double>({2, 5, 8}, 1));
  const Mask wrong = tape.mask(ones_of<bool>({2, 4}));
  EXPECT_EQ(message_of<ShapeError>([&] { model.blocks[1].self_attn(x, {.allow_keys = wrong}); }),
            "blocks.1.self_attn: [attention_packed] allow_keys must be (batch 2, time 5), got (2, 4)");
  const Var<double> narrow = tape.input(random_array<double>({2, 5, 7}, 1));
  EXPECT_EQ(message_of<ShapeError>([&] { model.head(narrow); }),
            "head: [linear] x must be (..., 8) to match weight (3, 8), got (2, 5, 7)");
}

TEST(LayerName, EndsWithTheCall) {
  Rng rng(1);
  const Model model(rng);
  Tape<double> tape;
  EXPECT_THROW(model.head(tape.number(1)), ShapeError);
  EXPECT_STREQ(current_layer(), "");
  expect_message<ShapeError>(
      [&] {
        tape.number(1) + tape.input(ones_of<double>({0, 2})) + tape.input(ones_of<double>({3, 3}));
      },
      {"[add]"});
  EXPECT_EQ(message_of<ShapeError>([&] { softmax(tape.number(1)); }).find("["), 0u);
}

TEST(LayerName, StandsOnTheRecord) {
  Rng rng(1);
  const Model model(rng);
  Tape<double> tape;
  const Var<double> x = tape.input(random_array<double>({2, 5, 8}, 1));
  EXPECT_STREQ(x.layer(), "");
  const Var<double> y = model.blocks[1](x);
  EXPECT_STREQ(y.op(), "add");
  EXPECT_STREQ(y.layer(), "blocks.1");
  EXPECT_STREQ((*model.blocks[0].norm2)(y).layer(), "blocks.0.norm2");
  EXPECT_STREQ((y + 1).layer(), "");
}

TEST(LayerName, SurvivesMovesAndIsGivenAnewByTheModelAround) {
  Rng rng(1);
  Model moved = Model(rng);
  EXPECT_STREQ(moved.blocks[1].self_attn.out_proj.name.path(), "blocks.1.self_attn.out_proj");
  Outer outer{std::move(moved)};
  name_layers(outer);
  EXPECT_STREQ(outer.inner.blocks[1].self_attn.out_proj.name.path(), "inner.blocks.1.self_attn.out_proj");
}

TEST(LayerName, ALanguageModelNamesItsLayers) {
  Rng rng(1);
  const TransformerLm<double> model({.vocabulary = 5, .length = 4, .width = 8, .heads = 2, .layers = 1}, rng);
  Tape<double> tape;
  EXPECT_EQ(message_of<ShapeError>([&] {
              model(tape, xt::xarray<int>{{1, 9}});
            }).find("token_embedding: [embedding] "),
            0u);
}

TEST(LayerName, ALayerWithoutANameLeavesThatAroundIt) {
  LayerName outer, none;
  outer.set("outer");
  const auto here = outer.enter();
  const auto inside = none.enter();
  EXPECT_STREQ(current_layer(), "outer");
}

}  // namespace
}  // namespace xtape::layer_name_test
