// The cost of decoding one more token grows linearly with the number of tokens that the cache holds.

#include <chrono>
#include <iostream>

#include "support.hpp"

namespace xtape {
namespace {

using Seconds = std::chrono::duration<double>;

/// Seconds of one more token; the cache is as before.
double seconds_of_a_step(const TransformerLm<float>& model, Tape<float>& tape, ModelCache<float>& cache) {
  const std::size_t held = cache.length();
  tape.clear();
  const std::int64_t token = 1;
  const Integers one = tape.integers(&token, {1, 1});
  const auto begin = std::chrono::steady_clock::now();
  model(tape, one, cache);
  const double seconds = Seconds(std::chrono::steady_clock::now() - begin).count();
  cache.truncate(held);
  return seconds;
}

/// Fills a cache to a length with random keys and values.
void fill(ModelCache<float>& cache, Tape<float>& tape, std::size_t length, std::size_t width) {
  tape.clear();
  const Var<float> more = tape.input(random_array<float>({1, length - cache.length(), width}, length));
  for (auto& layer : cache.layers) layer.append(more, more);
}

TEST(DecodingCost, GrowsLinearlyWithTheLengthHeld) {
  Rng rng(1);
  const std::size_t lengths[] = {4096, 8192, 16384, 32768};  // none fits into a processor's cache
  const TransformerLm<float> model({.vocabulary = 64, .width = 256, .heads = 8, .block = {.rope = RopeOptions{}}}, rng);
  Tape<float> tape;
  const auto no_grad = tape.no_grad();
  auto cache = model.cache(1, lengths[3] + 1);
  std::vector<double> costs;
  for (const std::size_t length : lengths) {
    fill(cache, tape, length, 256);
    double fastest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 100; ++i) fastest = std::min(fastest, seconds_of_a_step(model, tape, cache));
    costs.push_back(fastest);
    std::cout << length << " tokens held: " << costs.back() * 1e3 << " ms a step\n";
  }
  EXPECT_GT(costs[3] / costs[0], 2.5);  // 8 if linear, 1 if constant, 64 if quadratic
  EXPECT_LT(costs[3] / costs[0], 20);
}

TEST(DecodingCost, AtALengthOf1024IsWhatTheGrowthOfTheCacheExplains) {
  // A step reads each weight once, and once each number that the cache holds, which is all that grows.
  for (const std::size_t width : {128, 256, 384}) {
    Rng rng(1);
    TransformerLm<float> model({.vocabulary = 64, .length = 1025, .width = width, .heads = width / 32, .layers = 4},
                               rng);
    const std::size_t weights =
        count(parameters<float>(model)) - model.token_embedding.weight.size() - model.position_embedding->weight.size();
    const auto numbers = [&](std::size_t held) { return static_cast<double>(weights + 4 * 2 * held * width); };
    const double explained = numbers(1024) / numbers(64);

    Tape<float> tape;
    const auto no_grad = tape.no_grad();
    ModelCache<float> caches[] = {model.cache(1, 1025), model.cache(1, 1025)};
    fill(caches[0], tape, 64, width);
    fill(caches[1], tape, 1024, width);
    double fastest[] = {1e9, 1e9};
    for (int i = 0; i < 1000; ++i)  // in turn, so that whatever else the machine does meets both
      for (const int which : {0, 1})
        fastest[which] = std::min(fastest[which], seconds_of_a_step(model, tape, caches[which]));
    const double ratio = fastest[1] / fastest[0];
    std::cout << "width " << width << ": " << fastest[0] * 1e3 << " ms a step at 64 tokens, " << fastest[1] * 1e3
              << " ms at 1024, ratio " << ratio << ", explained " << explained << '\n';
    EXPECT_LE(ratio, 1.3 * explained) << "width " << width;
  }
}

}  // namespace
}  // namespace xtape
