// Attention at a time of 8,192: forward and backward in less than 48 MiB beside inputs, outputs and their gradients.

#include <sys/resource.h>

#include "support.hpp"

namespace xtape {
namespace {

double peak_mebibytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

TEST(AttentionMemory, OfEightThousandTokensFitsFortyEightMebibytes) {
  constexpr std::size_t time = 8192, width = 512, heads = 8;
  constexpr double array = time * width * sizeof(float) / 1024.0 / 1024.0;
  Tape<float> tape;
  Var<float> x[3];
  for (std::uint64_t i = 0; i < 3; ++i) x[i] = tape.input(random_array<float>({1, time, width}, i), true);
  const xt::xarray<float> upstream = random_array<float>({1, time, width}, 4);
  const double before = peak_mebibytes();
  const Var<float> y = attention(x[0], x[1], x[2], heads, {.causal = true});
  tape.backward(y, upstream);
  const double grown = peak_mebibytes() - before,
               own = 6 * array;  // y, three gradients, and two of what comes from above
  fmt::print("grown by {:.1f} MiB, of which outputs and gradients are {:.1f}\n", grown, own);
  EXPECT_LT(grown - own, 48);
}

}  // namespace
}  // namespace xtape
