// Numbers of 16 bits (case O36): rounded once to nearest even, and back exactly.

#include <xtape/framework/base/float16.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "support.hpp"

namespace xtape::float16_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A format and what defines it: bits of the mantissa, the least and the greatest number.
struct Format {
  const char* name;
  std::uint16_t (*to)(double);
  float (*from)(std::uint16_t);
  int mantissa_bits;
  double least, greatest;
  std::uint16_t infinite;
};
const Format binary16 = {"binary16", to_float16, from_float16, 10, 0x1p-24, 65504, 0x7C00};
const Format bfloat16 = {"bfloat16", to_bfloat16, from_bfloat16, 7, 0x1p-133, 0x1.FEp127, 0x7F80};

template <class Body>
void in_both_formats(Body body) {
  for (const Format& format : {binary16, bfloat16}) {
    SCOPED_TRACE(format.name);
    body(format);
  }
}

TEST(Behaviour, O36_BfloatsAreRoundedToNearestEven) {
  const auto rounded = [](double x) { return from_bfloat16(to_bfloat16(x)); };
  EXPECT_EQ(to_bfloat16(0.2691408770292272), 0x3E8A);
  EXPECT_EQ(rounded(0.2691408770292272), 0.26953125F);
  EXPECT_EQ(rounded(3.14), 3.140625F);
  EXPECT_EQ(rounded(1.00390625), 1.0F);
  EXPECT_EQ(rounded(1.01171875), 1.015625F);
  EXPECT_NEAR(rounded(1e-8), 1.0011717677e-8, 1e-17);
  EXPECT_EQ(to_bfloat16(-0.0), 0x8000);
  EXPECT_TRUE(std::signbit(from_bfloat16(0x8000)));
}

TEST(Float16, EveryNumberComesBack) {
  in_both_formats([](const Format& format) {
    for (std::uint32_t code = 0; code < 0x10000; ++code) {
      const auto bits = static_cast<std::uint16_t>(code);
      const float x = format.from(bits);
      if ((bits & 0x7FFF) <= format.infinite) {
        ASSERT_EQ(format.to(x), bits);
      } else {  // a NaN keeps sign and payload and becomes a quiet one
        ASSERT_TRUE(std::isnan(x)) << bits;
        ASSERT_EQ(format.to(x), bits | 1U << (format.mantissa_bits - 1));
      }
    }
  });
}

TEST(Float16, TheNumbersAreThoseOfTheFormat) {
  in_both_formats([](const Format& format) {
    EXPECT_EQ(format.from(0), 0.0F);
    EXPECT_EQ(format.from(1), format.least);
    EXPECT_EQ(format.from(format.infinite - 1), format.greatest);
    EXPECT_EQ(format.from(format.infinite), infinity);
    EXPECT_EQ(format.from(format.infinite | 0x8000), -infinity);
    EXPECT_EQ(format.from(format.to(1)), 1.0F);
    EXPECT_EQ(format.from(format.to(1) + 1), 1.0F + std::ldexp(1.0F, -format.mantissa_bits));
    for (std::uint32_t code = 1; code <= format.infinite;
         ++code)  // in the order of their bits, by steps of a power of 2
      ASSERT_GT(format.from(static_cast<std::uint16_t>(code)), format.from(static_cast<std::uint16_t>(code - 1)));
  });
}

/// The code of the number that is nearest to x >= 0, found by comparing; of two, the even one. What would be the next
/// number after the greatest stands for infinity.
std::uint16_t nearest(const Format& format, double x) {
  std::uint32_t below = 0, above = format.infinite;
  while (above - below > 1) {
    const std::uint32_t middle = (below + above) / 2;
    (format.from(static_cast<std::uint16_t>(middle)) <= x ? below : above) = middle;
  }
  const double low = format.from(static_cast<std::uint16_t>(below));
  const double next = format.from(static_cast<std::uint16_t>(below - 1));
  const double high = above == format.infinite ? low + (low - next) : format.from(static_cast<std::uint16_t>(above));
  const double half = low + (high - low) / 2;
  return static_cast<std::uint16_t>(x < half || (x == half && below % 2 == 0) ? below : above);
}

TEST(Float16, EachNumberGoesToTheNearest) {
  in_both_formats([](const Format& format) {
    Rng rng(1);
    const int least = std::ilogb(format.least), greatest = std::ilogb(format.greatest);
    for (int i = 0; i < 200'000; ++i) {
      const int exponent = least - 3 + static_cast<int>(rng.below(static_cast<std::size_t>(greatest - least + 6)));
      const double x = std::ldexp(1 + rng.uniform(), exponent);
      ASSERT_EQ(format.to(x), nearest(format, x)) << x;
      ASSERT_EQ(format.to(-x), nearest(format, x) | 0x8000) << x;
      const auto single = static_cast<float>(x);
      if (single > 0 && !std::isinf(single)) {
        ASSERT_EQ(format.to(single), nearest(format, single)) << x;
      }
    }
  });
}

TEST(Float16, HalfWayAndBesideIt) {
  in_both_formats([](const Format& format) {
    for (std::uint32_t code = 0; code < format.infinite; ++code) {
      const auto low = static_cast<std::uint16_t>(code), high = static_cast<std::uint16_t>(code + 1);
      const double a = format.from(low);
      const double b =
          high == format.infinite ? 2 * a - format.from(static_cast<std::uint16_t>(low - 1)) : format.from(high);
      const double half = a + (b - a) / 2;
      ASSERT_EQ(format.to(half), low % 2 == 0 ? low : high);
      ASSERT_EQ(format.to(std::nextafter(half, 0)), low);  // in double: by way of float these would be ties
      ASSERT_EQ(format.to(std::nextafter(half, infinity)), high);
    }
  });
}

TEST(Float16, WhatIsTooLargeIsInfinite) {
  EXPECT_EQ(to_float16(65504), 0x7BFF);
  EXPECT_EQ(to_float16(std::nextafter(65520.0, 0)), 0x7BFF);
  EXPECT_EQ(to_float16(65520), 0x7C00);
  EXPECT_EQ(to_bfloat16(std::numeric_limits<float>::max()), 0x7F80);
  in_both_formats([](const Format& format) {
    for (const double x : {1e39, 1e300, std::numeric_limits<double>::max(), infinity}) {
      EXPECT_EQ(format.to(x), format.infinite);
      EXPECT_EQ(format.to(-x), format.infinite | 0x8000);
    }
  });
}

TEST(Float16, WhatIsTooSmallIsZeroOfTheSameSign) {
  in_both_formats([](const Format& format) {
    const double limits[] = {format.least / 2, 1e-60, std::numeric_limits<double>::min(),
                             std::numeric_limits<double>::denorm_min(), 0.0};
    for (const double x : limits) {
      EXPECT_EQ(format.to(x), 0);
      EXPECT_EQ(format.to(-x), 0x8000);
    }
    EXPECT_EQ(format.to(std::nextafter(format.least / 2, 1)), 1);
  });
}

TEST(Float16, NaNsStayNaNs) {
  in_both_formats([](const Format& format) {
    for (int bit = 0; bit < 52; ++bit)
      for (const std::uint64_t sign : {0ULL, 1ULL}) {  // a low payload bit alone must not leave infinity
        const auto x = std::bit_cast<double>(sign << 63 | 0x7FFULL << 52 | 1ULL << bit);
        const std::uint16_t bits = format.to(x);
        EXPECT_TRUE(std::isnan(format.from(bits))) << "bit " << bit;
        EXPECT_EQ(bits >> 15, sign);
      }
    const float payload_of_a_float = std::bit_cast<float>(0x7F800001U);
    EXPECT_TRUE(std::isnan(format.from(format.to(payload_of_a_float))));
  });
}

}  // namespace
}  // namespace xtape::float16_test
