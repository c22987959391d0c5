#include <xtape/framework/base/random.hpp>

#include <Random123/philox.h>

#include <cmath>
#include <numbers>

#include <xtape/framework/base/error.hpp>

namespace xtape {

std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t high, std::uint64_t low) {
  const auto word = [](std::uint64_t x, int shift) { return static_cast<std::uint32_t>(x >> shift); };
  const auto block = r123::Philox4x32{}({{word(low, 0), word(low, 32), word(high, 0), word(high, 32)}},
                                        {{word(key, 0), word(key, 32)}});
  return {block[0], block[1], block[2], block[3]};
}

std::uint64_t Rng::bits() {
  // The stream has a counter of its own kind (high word all ones), apart from the counters of dropout.
  const auto block = philox(seed_, ~std::uint64_t{0}, position_++);
  return std::uint64_t{block[1]} << 32 | block[0];
}

double Rng::uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

double Rng::normal() {
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));  // 1 - u lies in (0, 1]
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

std::uint64_t Rng::below(std::uint64_t n) {
  require(n > 0, "[Rng::below] expected at least one number to choose from, got 0");
  const std::uint64_t excess = (~std::uint64_t{0} % n + 1) % n;  // 2^64 mod n
  std::uint64_t x = bits();
  while (x > ~std::uint64_t{0} - excess) x = bits();
  return x % n;
}

}  // namespace xtape
