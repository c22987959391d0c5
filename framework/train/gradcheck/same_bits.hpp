#pragma once
// Numbers compared bit for bit: 0 differs from -0, and a NaN equals itself.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace xtape::detail {

inline bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }
inline bool same_bits(const double* a, const double* b, std::size_t count) {
  return count == 0 || std::memcmp(a, b, count * sizeof(double)) == 0;
}

}  // namespace xtape::detail
