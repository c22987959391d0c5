#pragma once
// The generator of base/random.hpp on several counters at once; for kernel files only.

#include <array>
#include <cstddef>
#include <cstdint>

#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {

using PhiloxLanes = xsimd::batch<std::uint64_t>;

/// The product of the lower halves of each lane; the upper ones may hold anything.
inline PhiloxLanes multiply_lower_halves(PhiloxLanes x, PhiloxLanes m) {
#if defined(__AVX512F__)
  return _mm512_mul_epu32(x, m);
#elif defined(__AVX2__)
  return _mm256_mul_epu32(x, m);
#else
  return (x & PhiloxLanes(0xFFFFFFFFu)) * (m & PhiloxLanes(0xFFFFFFFFu));
#endif
}

inline constexpr std::size_t philox_words = 16 * PhiloxLanes::size;

/// The words of philox(key, high, low), philox(key, high, low + 1), ... one after another: Philox4x32 with 10 rounds
/// (Salmon et al. 2011, section 3.3). A word stands in the lower half of its lane, and what a product leaves in the
/// upper half is carried along: the next product does not see it.
inline void philox_stretch(std::uint64_t key, std::uint64_t high, std::uint64_t low, std::uint32_t* words) {
  constexpr std::size_t size = PhiloxLanes::size, groups = 4, rounds = 10;
  alignas(64) std::uint64_t counters[groups][size];
  for (std::size_t i = 0; i < groups * size; ++i) counters[i / size][i % size] = low + i;
  const PhiloxLanes m0(0xD2511F53u), m1(0xCD9E8D57u);
  PhiloxLanes c0[groups], c1[groups], c2[groups], c3[groups];
  for (std::size_t g = 0; g < groups; ++g) {
    c0[g] = PhiloxLanes::load_aligned(counters[g]);
    c1[g] = c0[g] >> 32;
    c2[g] = PhiloxLanes(high);
    c3[g] = PhiloxLanes(high >> 32);
  }
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (std::size_t round = 0; round < rounds; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
    for (std::size_t g = 0; g < groups; ++g) {
      const PhiloxLanes a = multiply_lower_halves(c0[g], m0), b = multiply_lower_halves(c2[g], m1);
      c0[g] = (b >> 32) ^ c1[g] ^ PhiloxLanes(std::uint64_t{k0});
      c1[g] = b;
      c2[g] = (a >> 32) ^ c3[g] ^ PhiloxLanes(std::uint64_t{k1});
      c3[g] = a;
    }
  const PhiloxLanes lower(0xFFFFFFFFu);
  alignas(64) std::uint64_t first[size], second[size];
  for (std::size_t g = 0; g < groups; ++g) {
    ((c0[g] & lower) | (c1[g] << 32)).store_aligned(first);
    ((c2[g] & lower) | (c3[g] << 32)).store_aligned(second);
    for (std::size_t lane = 0; lane < size; ++lane, words += 4) {
      words[0] = static_cast<std::uint32_t>(first[lane]);
      words[1] = static_cast<std::uint32_t>(first[lane] >> 32);
      words[2] = static_cast<std::uint32_t>(second[lane]);
      words[3] = static_cast<std::uint32_t>(second[lane] >> 32);
    }
  }
}

}  // namespace xtape::kernels
