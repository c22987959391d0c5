// Continuing prompts token by token: the same text as without a cache, how tokens are chosen, and what is refused.

#include <cmath>

#include "support.hpp"

namespace xtape::generate_test {
namespace {

using Row = std::vector<std::int64_t>;

template <class T>
TransformerLm<T> language_model(bool rotary) {
  Rng rng(8);
  TransformerBlockOptions block{.hidden = 16, .kv_heads = 2};
  if (rotary) block.rope = RopeOptions{};
  return TransformerLm<T>({.vocabulary = 9, .length = 24, .width = 16, .heads = 4, .block = block}, rng);
}

const TokenRows prompts = {{4, 1, 5}, {2}, {3, 8, 0, 7, 6}, {2}};

/// The most probable continuation of one prompt, the whole of it again for each token.
template <class T>
Row continued_without_a_cache(const TransformerLm<T>& model, Row row, std::size_t new_tokens) {
  Tape<T> tape;
  tape.set_training(false);
  const std::size_t begin = row.size();
  while (row.size() < begin + new_tokens) {
    const xt::xarray<std::int64_t> tokens = xt::adapt(row, {std::size_t{1}, row.size()});
    const xt::xarray<T> logits = array(model(tape, tokens));
    const auto last = logits.end() - 9;
    row.push_back(std::max_element(last, last + 9) - last);
  }
  return Row(row.begin() + static_cast<std::ptrdiff_t>(begin), row.end());
}

template <class T>
class Generate : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Generate, Scalars);

TYPED_TEST(Generate, SaysWhatTheModelSaysWithoutACache) {
  using T = TypeParam;
  for (const bool rotary : {true, false}) {
    const auto model = language_model<T>(rotary);
    const TokenRows answers = generate(model, prompts, {.new_tokens = 15});
    ASSERT_EQ(answers.size(), prompts.size());
    for (std::size_t row = 0; row < prompts.size(); ++row) {
      EXPECT_EQ(answers[row], continued_without_a_cache(model, prompts[row], 15)) << "row " << row;
      EXPECT_EQ(answers[row], generate(model, prompts[row], {.new_tokens = 15})) << "row " << row;
    }
    EXPECT_NE(answers[0], answers[2]) << "a model that always says the same would show nothing";
  }
}

TYPED_TEST(Generate, ARowEndsWithItsStopTokenAndTheOthersGoOn) {
  using T = TypeParam;
  const auto model = language_model<T>(true);
  const TokenRows whole = generate(model, prompts, {.new_tokens = 12});
  for (std::int64_t stop = 0; stop < 9; ++stop) {
    TokenRows right = whole, heard(prompts.size());
    for (Row& row : right) {
      const auto found = std::find(row.begin(), row.end(), stop);
      if (found != row.end()) row.erase(found + 1, row.end());
    }
    const auto answers =
        generate(model, prompts, {.new_tokens = 12, .stop = stop, .on_token = [&](std::size_t row, std::int64_t token) {
                                    heard[row].push_back(token);
                                  }});
    EXPECT_EQ(answers, right) << stop;
    EXPECT_EQ(heard, right) << stop;
  }
}

TYPED_TEST(Generate, DrawsAreAFunctionOfTheSeedAndItsPosition) {
  using T = TypeParam;
  const auto model = language_model<T>(true);
  const auto run = [&](Rng rng) {
    return generate(model, prompts, {.new_tokens = 15, .temperature = 1.5, .rng = rng});
  };
  EXPECT_EQ(run(Rng(1)), run(Rng(1)));
  EXPECT_NE(run(Rng(1)), run(Rng(2)));
  EXPECT_NE(run(Rng(1)), run(Rng(1, 7)));
  const auto answers = run(Rng(1));
  EXPECT_NE(answers[1], answers[3]) << "rows with the same prompt draw numbers of their own";
  EXPECT_EQ(generate(model, prompts, {.new_tokens = 15, .temperature = 1.5, .top_k = 1}),
            generate(model, prompts, {.new_tokens = 15}));
  EXPECT_EQ(generate(model, prompts, {.new_tokens = 15, .temperature = 1.5, .top_p = 1e-9}),
            generate(model, prompts, {.new_tokens = 15}));
}

TYPED_TEST(Generate, TrainsNothingAndDropsNothing) {
  using T = TypeParam;
  Rng rng(8);
  TransformerLm<T> model(
      {.vocabulary = 9, .length = 24, .width = 16, .heads = 4, .block = {.dropout = .5, .attention_dropout = .5}}, rng);
  EXPECT_EQ(generate(model, prompts[0], {.new_tokens = 9}), continued_without_a_cache(model, prompts[0], 9));
  for (const auto& entry : parameters<T>(model)) EXPECT_FALSE(entry.parameter.has_grad());
}

TYPED_TEST(Generate, RefusesWhatItCannotContinue) {
  using T = TypeParam;
  auto model = language_model<T>(false);
  EXPECT_TRUE(generate(model, TokenRows{}).empty());
  EXPECT_EQ(generate(model, prompts, {.new_tokens = 0}), TokenRows(4));
  expect_message<Error>([&] { generate(model, TokenRows{{1, 2}, {}}); }, {"[generate]", "at least one token", "row 1"});
  EXPECT_EQ(generate(model, prompts, {.new_tokens = 20})[2].size(), 20u);  // the last one needs no place
  expect_message<ShapeError>([&] { generate(model, prompts, {.new_tokens = 21}); }, {"24 positions", "25 tokens"});
  EXPECT_THROW(generate(model, prompts, {.new_tokens = ~std::size_t{0}}), Error);
  for (const std::int64_t token : {-1, 9}) EXPECT_THROW(generate(model, Row{1, token}, {.new_tokens = 2}), Error);
  for (const double temperature : {-1., std::nan(""), std::numeric_limits<double>::infinity()})
    expect_message<Error>([&] { generate(model, prompts, {.new_tokens = 2, .temperature = temperature}); },
                          {"temperature must be"});
  for (const double top_p : {0., -1., 1.1, std::nan("")})
    expect_message<Error>([&] { generate(model, prompts, {.new_tokens = 2, .top_p = top_p}); }, {"top_p must be"});
  model.head.weight.write()(3, 0) = std::numeric_limits<T>::quiet_NaN();
  expect_message<Error>([&] { generate(model, prompts, {.new_tokens = 2}); },
                        {"logits that are finite", "got nan for token 3"});
}

/// A model that says the next number, and notes how much stands on the tape.
struct Counting {
  std::vector<std::size_t>& values;
  ModelCache<float> cache(std::size_t batch, std::size_t capacity) const {
    ModelCache<float> result;
    result.layers.emplace_back(batch, capacity, 1, 1);
    return result;
  }
  Var<float> operator()(Tape<float>& tape, const Integers& tokens, ModelCache<float>&, const Mask&) const {
    values.push_back(tape.size());
    xt::xarray<std::int64_t> next = detail::adapt(tokens.data, tokens.shape);
    return one_hot(tape, xt::xarray<std::int64_t>((next + 1) % 10), 10);
  }
};

TEST(GenerateWithAModelOfOnesOwn, LeavesNothingOnTheTapeFromStepToStep) {
  std::vector<std::size_t> values;
  EXPECT_EQ(generate(Counting{values}, Row{3, 7}, {.new_tokens = 5}), (Row{8, 9, 0, 1, 2}));
  EXPECT_EQ(values, std::vector<std::size_t>(5, 2));  // tokens and mask
}

// ---- the choice of a token

std::vector<double> probabilities(const std::vector<double>& logits, const Sampling& sampling) {
  return token_probabilities<double>(logits, sampling);
}
void expect_near(const std::vector<double>& x, const std::vector<double>& y) {
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-12) << i;
}
const double minus_infinity = -std::numeric_limits<double>::infinity();
const std::vector<double> logits = {std::log(.1), std::log(.4), std::log(.2), std::log(.3)};

TEST(Sampling, TemperatureSharpensAndFlattens) {
  expect_near(probabilities(logits, {.temperature = 1}), {.1, .4, .2, .3});
  expect_near(probabilities(logits, {.temperature = .5}), {.01 / .3, .16 / .3, .04 / .3, .09 / .3});
  expect_near(probabilities(logits, {.temperature = 1e300}), {.25, .25, .25, .25});
  expect_near(probabilities(logits, {.temperature = 1e-300}), {0, 1, 0, 0});
  expect_near(probabilities(logits, {}), {0, 1, 0, 0});
  expect_near(probabilities({1, 7, 7}, {}), {0, 1, 0});  // the first of equals
  expect_near(probabilities({1e308, -1e308}, {.temperature = 1}), {1, 0});
  expect_near(probabilities({minus_infinity, 0, 0}, {.temperature = 1}), {0, .5, .5});
}

TEST(Sampling, TopKKeepsTheKMostProbable) {
  expect_near(probabilities(logits, {.temperature = 1, .top_k = 2}), {0, .4 / .7, 0, .3 / .7});
  expect_near(probabilities(logits, {.temperature = 1, .top_k = 1}), {0, 1, 0, 0});
  for (const std::size_t k : {0, 4, 100})
    expect_near(probabilities(logits, {.temperature = 1, .top_k = k}), {.1, .4, .2, .3});
  expect_near(probabilities({0, 0, 0, 0}, {.temperature = 1, .top_k = 3}), {1. / 3, 1. / 3, 1. / 3, 0});
  std::vector<double> first_of_many(100, 0);
  first_of_many[0] = first_of_many[1] = .5;
  expect_near(probabilities(std::vector<double>(100, 7), {.temperature = 1, .top_k = 2}), first_of_many);
  expect_near(probabilities({minus_infinity, 0, minus_infinity}, {.temperature = 1, .top_k = 2}), {0, 1, 0});
}

TEST(Sampling, TopPKeepsTheFewestThatReachTheMass) {
  expect_near(probabilities(logits, {.temperature = 1, .top_p = .39}), {0, 1, 0, 0});
  expect_near(probabilities(logits, {.temperature = 1, .top_p = .41}), {0, .4 / .7, 0, .3 / .7});
  expect_near(probabilities(logits, {.temperature = 1, .top_p = .69}), {0, .4 / .7, 0, .3 / .7});
  expect_near(probabilities(logits, {.temperature = 1, .top_p = .71}), {0, .4 / .9, .2 / .9, .3 / .9});
  expect_near(probabilities(logits, {.temperature = 1, .top_p = 1}), {.1, .4, .2, .3});
  expect_near(probabilities({0, 0}, {.temperature = 1, .top_p = .5}), {1, 0});  // reached exactly
  // After top_k, of whose mass .7 the first one has .57.
  expect_near(probabilities(logits, {.temperature = 1, .top_k = 2, .top_p = .55}), {0, 1, 0, 0});
  expect_near(probabilities(logits, {.temperature = 1, .top_k = 2, .top_p = .6}), {0, .4 / .7, 0, .3 / .7});
}

TEST(Sampling, WhatCannotBeChosenFromIsRefused) {
  for (const double temperature : {0., 1.}) {
    const Sampling sampling{.temperature = temperature};
    expect_message<Error>([&] { probabilities({1, std::nan(""), 2}, sampling); }, {"[sampling]", "nan for token 1"});
    expect_message<Error>([&] { probabilities({1, 2, -minus_infinity}, sampling); }, {"inf for token 2"});
    expect_message<Error>([&] { probabilities({minus_infinity, minus_infinity}, sampling); }, {"all -inf"});
    expect_message<Error>([&] { probabilities({}, sampling); }, {"at least one token"});
  }
}

TEST(Sampling, TokensComeAsOftenAsTheirProbabilitySays) {
  const std::vector<double> p = {0, .1, .4, 0, .2, .3, 0};
  std::vector<double> counts(p.size(), 0);
  constexpr int n = 100000;
  Rng rng(1);
  for (int i = 0; i < n; ++i) ++counts[token_at(p, rng.uniform())];
  for (std::size_t i = 0; i < p.size(); ++i)
    EXPECT_NEAR(counts[i] / n, p[i], 5 * std::sqrt(p[i] * (1 - p[i]) / n)) << i;
  EXPECT_EQ(token_at(p, 0), 1u);
  EXPECT_EQ(token_at({.5, .25, 0}, .999), 1u);  // a sum below 1 never ends in what cannot come
}

}  // namespace
}  // namespace xtape::generate_test
