#pragma once
// Random numbers as a pure function of a key and a counter (Philox 4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel
// random numbers: as easy as 1, 2, 3", SC 2011, section 4.3). No state is shared, so threads, tiles and resumes cannot
// change them.

#include <array>
#include <cstddef>
#include <cstdint>

namespace xtape {

/// Four independent 32-bit numbers that belong to (key, high, low).
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t high, std::uint64_t low);

/// A stream of random numbers for initial weights, data and sampling. The same seed gives the same stream on every
/// machine; (seed, position) is its whole state.
class Rng {
 public:
  explicit Rng(std::uint64_t seed = 0, std::uint64_t position = 0) : seed_(seed), position_(position) {}
  std::uint64_t seed() const { return seed_; }
  std::uint64_t position() const { return position_; }

  /// 64 uniform bits.
  std::uint64_t bits();
  /// Uniform in [0, 1), in steps of 2^-53.
  double uniform();
  /// Normal with mean 0 and standard deviation 1 (Box and Muller 1958), from two uniforms.
  double normal();
  /// Uniform among 0, 1, ..., n - 1 without bias; n must not be 0.
  std::uint64_t below(std::uint64_t n);

 private:
  std::uint64_t seed_, position_;
};

}  // namespace xtape
