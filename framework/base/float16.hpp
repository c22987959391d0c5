#pragma once
// Floating point numbers of 16 bits, as they stand in files.

#include <cstdint>

namespace xtape {

/// IEEE 754 binary16 (5 bits of exponent, 10 of mantissa), rounded once to the nearest, ties to even. Beyond 65,504
/// (from 65,520 on) it is infinity; below 2^-14 it is subnormal. A NaN stays a NaN, with its sign and the upper bits of
/// its payload.
std::uint16_t to_float16(double x);
/// Exact.
float from_float16(std::uint16_t bits);

/// bfloat16 (8 bits of exponent, 7 of mantissa: the upper half of a float), rounded in the same way.
std::uint16_t to_bfloat16(double x);
/// Exact.
float from_bfloat16(std::uint16_t bits);

}  // namespace xtape
