// What attention keeps: with tiles nothing that grows with the square of the time.

#include "support.hpp"

namespace xtape::attention_memory_test {
namespace {

/// Bytes that a tape holds at its peak for one forward and backward beyond inputs, outputs and their gradients.
std::size_t extra_bytes(AttentionKernel kernel, std::size_t time) {
  constexpr std::size_t width = 32, heads = 4;
  Tape<float> tape;
  const Var<float> q = tape.input(random_array<float>({1, time, width}, 1), true),
                   k = tape.input(random_array<float>({1, time, width}, 2), true),
                   v = tape.input(random_array<float>({1, time, width}, 3), true);
  const Var<float> y = attention(q, k, v, heads, {.causal = true, .dropout = 0.1, .kernel = kernel});
  tape.backward(y, ones_of<float>({1, time, width}));
  const MemoryUse use = tape.memory();
  const std::size_t arrays = 4 * time * width * sizeof(float);
  EXPECT_GE(use.values.peak, arrays);
  EXPECT_GE(use.gradients.peak, arrays);
  return use.values.peak + use.saved.peak + use.gradients.peak - 2 * arrays;
}

TEST(AttentionMemory, OfTheTiledKernelGrowsWithTheTimeAndNotWithItsSquare) {
  const double small = static_cast<double>(extra_bytes(AttentionKernel::tiled, 600)),
               large = static_cast<double>(extra_bytes(AttentionKernel::tiled, 2400));
  EXPECT_LT(large, 4.2 * small);
  EXPECT_LT(large, 4 * 1024 * 1024);  // the weights alone would be 92 MB
}

TEST(AttentionMemory, TheMeasureSeesTheWeightsOfTheOtherKernel) {
  const std::size_t time = 600, weights = 4 * time * time * sizeof(float);
  EXPECT_GT(extra_bytes(AttentionKernel::materialised, time), weights);
  EXPECT_LT(extra_bytes(AttentionKernel::tiled, time), weights / 2);
}

TEST(AttentionMemory, IsChosenBySizeAndWithoutBackwardNothingIsKept) {
  const auto saved = [](std::size_t time, bool backward) {
    Tape<float> tape;
    const Var<float> x = tape.input(random_array<float>({2, time, 8}, 1), backward);
    attention(x, x, x, 2);
    return tape.memory().saved.now;
  };
  EXPECT_GE(saved(100, true), 4u * 100 * 100 * sizeof(float));
  EXPECT_LE(saved(200, true), 4u * 200 * 2 * sizeof(float) + 1024);
  EXPECT_EQ(saved(100, false), 0u);
  EXPECT_EQ(saved(200, false), 0u);
}

}  // namespace
}  // namespace xtape::attention_memory_test
