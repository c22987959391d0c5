// The cost of decoding one more token grows linearly with the number of tokens that the cache holds.

#include <chrono>
#include <iostream>

#include "support.hpp"

namespace xtape {
namespace {

using Seconds = std::chrono::duration<double>;

TEST(DecodingCost, GrowsLinearlyWithTheLengthHeld) {
  Rng rng(1);
  const std::size_t lengths[] = {4096, 8192, 16384, 32768};  // none fits into a processor's cache
  const TransformerLm<float> model({.vocabulary = 64, .width = 256, .heads = 8, .block = {.rope = RopeOptions{}}}, rng);
  Tape<float> tape;
  const auto no_grad = tape.no_grad();
  auto cache = model.cache(1, lengths[3] + 1);
  const xt::xarray<int> one = xt::ones<int>({1, 1});
  const auto step = [&] {  // the fastest of many, and the cache as before
    double fastest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 100; ++i) {
      const std::size_t held = cache.length();
      tape.clear();
      const auto begin = std::chrono::steady_clock::now();
      model(tape, one, cache);
      fastest = std::min(fastest, Seconds(std::chrono::steady_clock::now() - begin).count());
      cache.truncate(held);
    }
    return fastest;
  };
  std::vector<double> costs;
  for (const std::size_t length : lengths) {
    tape.clear();
    const Var<float> more = tape.input(random_array<float>({1, length - cache.length(), 256}, length));
    for (auto& layer : cache.layers) layer.append(more, more);
    costs.push_back(step());
    std::cout << length << " tokens held: " << costs.back() * 1e3 << " ms a step\n";
  }
  EXPECT_GT(costs[3] / costs[0], 2.5);  // 8 if linear, 1 if constant, 64 if quadratic
  EXPECT_LT(costs[3] / costs[0], 20);
}

}  // namespace
}  // namespace xtape
