// Weights that several places share, and weights that stand still.

#include <algorithm>

#include "files.hpp"
#include "support.hpp"

namespace xtape::tied_and_frozen_test {
namespace {

using Scalars = testing::Types<float, double>;

const xt::xarray<int> tokens = {{1, 4, 0, 1}, {3, 3, 2, 0}}, targets = {{4, 0, 1, 2}, {3, -100, 0, 1}};

template <class T>
TransformerLm<T> language_model(bool tied) {
  Rng rng(5);
  return TransformerLm<T>(
      {.vocabulary = 5, .length = 4, .width = 6, .heads = 2, .block = {.hidden = 8}, .tie_embeddings = tied}, rng);
}
template <class T>
EncoderDecoder<T> encoder_decoder(bool tied) {
  Rng rng(5);
  return EncoderDecoder<T>({.source_vocabulary = 5,
                            .target_vocabulary = 5,
                            .length = 4,
                            .width = 6,
                            .heads = 2,
                            .block = {.hidden = 8},
                            .tie_embeddings = tied},
                           rng);
}

template <class T>
xt::xarray<T> values(const Parameter<T>& parameter) {
  return parameter.value();
}
template <class T>
Var<T> loss_of(const TransformerLm<T>& model, Tape<T>& tape) {
  return cross_entropy(model(tape, tokens), targets);
}
template <class T>
Var<T> loss_of(const EncoderDecoder<T>& model, Tape<T>& tape) {
  return cross_entropy(model(tape, tokens, tokens), targets);
}

// ---- tied (case O20)

template <class T>
class Tied : public testing::Test {};
TYPED_TEST_SUITE(Tied, Scalars);

/// One table under `first` alone, `copies` of which an untied model has.
template <class T, class Make>
void expect_one_parameter(Make make, const std::string& first, const std::string& head, std::size_t copies) {
  auto tied = make(true), untied = make(false);
  auto list = parameters<T>(tied), separate = parameters<T>(untied);
  const std::size_t table = 5 * 6;
  EXPECT_EQ(list.size() + copies - 1, separate.size());
  EXPECT_EQ(count(list) + (copies - 1) * table, count(separate));
  const auto named = [](auto& entries, const std::string& name) {
    return std::any_of(entries.begin(), entries.end(), [&](auto& entry) { return entry.name == name; });
  };
  EXPECT_TRUE(named(list, first) && !named(list, head));
  EXPECT_TRUE(named(separate, head));
  EXPECT_NE(describe(tied).find(fmt::format("{:>9}\n", count(list))), std::string::npos) << describe(tied);
  EXPECT_EQ(describe(tied).find(head), std::string::npos);

  AdamW<T> optimizer(list);
  EXPECT_EQ(optimizer.state().size(), 3 * list.size());  // two moments and a count
  Tape<T> tape;
  tape.backward(loss_of(tied, tape));
  for (const std::string& name : names_without_grad(list)) ADD_FAILURE() << name << " got no gradient";
  optimizer.step();

  // A file holds it once, and loading keeps the tie.
  const TemporaryFolder folder;
  const auto path = folder / "tied.safetensors";
  save_safetensors(path, list);
  auto other = make(true);
  auto other_list = parameters<T>(other);
  fill(other_list[0].parameter, T(7));
  load_safetensors(path, other_list);
  tape.clear();
  const T loaded = loss_of(other, tape).item();
  EXPECT_EQ(loaded, loss_of(tied, tape).item());
}

TYPED_TEST(Tied, ALanguageModelHasOneTable) {
  using T = TypeParam;
  expect_one_parameter<T>(language_model<T>, "token_embedding.weight", "head.weight", 2);
  const auto model = language_model<T>(true);
  EXPECT_TRUE(model.head.weight.is(model.token_embedding.weight));
}

TYPED_TEST(Tied, AnEncoderDecoderHasOneTableForAllThree) {
  using T = TypeParam;
  expect_one_parameter<T>(encoder_decoder<T>, "source_embedding.weight", "generator.weight", 3);
  Rng rng(1);
  expect_message<ShapeError>(
      [&] {
        EncoderDecoder<T>({.source_vocabulary = 5, .target_vocabulary = 6, .length = 4, .tie_embeddings = true}, rng);
      },
      {"[EncoderDecoder]", "one vocabulary", "5 source", "6 target"});
}

TYPED_TEST(Tied, TheGradientIsTheSumOverAllPlaces) {
  using T = TypeParam;
  auto tied = language_model<T>(true), untied = language_model<T>(false);
  auto of_tied = parameters<T>(tied), of_untied = parameters<T>(untied);
  for (auto& [name, parameter] : of_untied)  // the same numbers everywhere
    for (auto& [other, source] : of_tied)
      if (other == name || (name == "head.weight" && other == "token_embedding.weight"))
        xt::noalias(parameter.write()) = source.value();
  Tape<T> tape;
  tape.backward(loss_of(tied, tape));
  tape.backward(loss_of(untied, tape));
  const xt::xarray<T> table = untied.token_embedding.weight.grad(), head = untied.head.weight.grad();
  EXPECT_TRUE(near(tied.token_embedding.weight.grad(), xt::xarray<T>(table + head), tolerance::two_paths<T>));
  EXPECT_FALSE(near(table, xt::xarray<T>(table + head), tolerance::two_paths<T>));
  EXPECT_FALSE(near(head, xt::xarray<T>(table + head), tolerance::two_paths<T>));
}

// ---- frozen

template <class T>
class Frozen : public testing::Test {};
TYPED_TEST_SUITE(Frozen, Scalars);

/// Freezes the parameters whose names start with `part`, takes two steps, and compares with the same steps unfrozen.
template <class T>
void expect_frozen(const std::string& part) {
  SCOPED_TRACE(part);
  auto model = language_model<T>(false), free = language_model<T>(false);
  auto list = parameters<T>(model), free_list = parameters<T>(free);
  const auto stands_still = [&](const std::string& name) { return name.starts_with(part); };
  std::vector<xt::xarray<T>> before;
  std::size_t still = 0;
  for (auto& [name, parameter] : list) {
    before.push_back(values(parameter));
    if (stands_still(name)) parameter.freeze(), ++still;
  }
  ASSERT_GT(still, 0u);
  ASSERT_LT(still, list.size());
  AdamW<T> optimizer(list, {.learning_rate = 0.1, .weight_decay = 0.1});
  Tape<T> tape;
  tape.backward(loss_of(model, tape));
  tape.backward(loss_of(free, tape));
  for (std::size_t i = 0; i < list.size(); ++i) {
    auto& [name, parameter] = list[i];
    EXPECT_EQ(parameter.has_grad(), !stands_still(name)) << name;
    if (stands_still(name)) continue;
    // What lies before and after the frozen part gets the gradient that it would get anyway.
    EXPECT_TRUE(near(parameter.grad(), free_list[i].parameter.grad(), tolerance::two_paths<T>)) << name;
    EXPECT_FALSE(all_zero(xt::xarray<T>(parameter.grad()))) << name;
  }
  for (int step = 0; step < 2; ++step) {
    tape.clear();
    optimizer.zero_grad();
    tape.backward(loss_of(model, tape));
    optimizer.step();
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto& [name, parameter] = list[i];
    EXPECT_EQ(values(parameter) == before[i], stands_still(name)) << name;
  }
  for (auto& entry : list) entry.parameter.freeze(false);
  tape.clear();
  optimizer.zero_grad();
  tape.backward(loss_of(model, tape));
  EXPECT_TRUE(names_without_grad(list).empty());
}

TYPED_TEST(Frozen, PartsStandStillAndLetTheGradientPass) {
  for (const char* part : {"token_embedding", "position_embedding", "blocks.0", "blocks.1", "blocks.1.self_attn",
                           "blocks.0.norm1", "norm", "head"})
    expect_frozen<TypeParam>(part);
}

TYPED_TEST(Frozen, AModelWithoutAnythingToTrainSaysSo) {
  using T = TypeParam;
  auto model = language_model<T>(false);
  for (auto& entry : parameters<T>(model)) entry.parameter.freeze();
  Tape<T> tape;
  const Var<T> loss = loss_of(model, tape);
  EXPECT_FALSE(loss.requires_grad());
  expect_message<TapeError>([&] { tape.backward(loss); }, {"[backward]", "requires a gradient"});
}

}  // namespace
}  // namespace xtape::tied_and_frozen_test
