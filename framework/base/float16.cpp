#include <xtape/framework/base/float16.hpp>

#include <bit>

namespace xtape {
namespace {

/// x in a narrower format of IEEE 754. A float is a double too, so rounding from double serves both, and once.
std::uint16_t narrowed(double x, int exponent_bits, int mantissa_bits) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto sign = static_cast<std::uint64_t>((bits >> 63) << (exponent_bits + mantissa_bits));
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  const int wide_exponent = static_cast<int>(bits >> 52 & 0x7FF);
  const int infinite_exponent = (1 << exponent_bits) - 1;
  const std::uint64_t infinity = static_cast<std::uint64_t>(infinite_exponent) << mantissa_bits;
  if (wide_exponent == 0x7FF) {
    const std::uint64_t quiet = std::uint64_t{1} << (mantissa_bits - 1);
    const std::uint64_t payload = mantissa == 0 ? 0 : quiet | mantissa >> (52 - mantissa_bits);
    return static_cast<std::uint16_t>(sign | infinity | payload);
  }
  const int exponent = wide_exponent - 1023 + infinite_exponent / 2;  // with the narrow format's bias
  if (exponent >= infinite_exponent) return static_cast<std::uint16_t>(sign | infinity);
  const int shift = 52 - mantissa_bits + (exponent < 1 ? 1 - exponent : 0);
  if (shift > 53) return static_cast<std::uint16_t>(sign);  // less than half of the least number
  const std::uint64_t significand = std::uint64_t{1} << 52 | mantissa;
  const std::uint64_t odd = significand >> shift & 1;
  const std::uint64_t rounded = (significand + (std::uint64_t{1} << (shift - 1)) - 1 + odd) >> shift;
  // The leading one adds 1 to the exponent, and so does a mantissa that was rounded up to the next power of two.
  const std::uint64_t below = exponent < 1 ? 0 : static_cast<std::uint64_t>(exponent - 1) << mantissa_bits;
  return static_cast<std::uint16_t>(sign | (below + rounded));
}

}  // namespace

std::uint16_t to_float16(double x) { return narrowed(x, 5, 10); }
std::uint16_t to_bfloat16(double x) { return narrowed(x, 8, 7); }

float from_float16(std::uint16_t bits) {
  const std::uint32_t exponent = bits >> 10 & 0x1F, mantissa = bits & 0x3FF, sign = std::uint32_t{bits} >> 15 << 31;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return sign == 0 ? magnitude : -magnitude;
  }
  const std::uint32_t wide_exponent = exponent == 0x1F ? 0xFF : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide_exponent << 23 | mantissa << 13);
}

float from_bfloat16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

}  // namespace xtape
