#include <algorithm>
#include <set>

#include "support.hpp"

namespace xtape::random_test {
namespace {

TEST(Random, PhiloxGivesThePublishedNumbers) {
  // The known answers of Philox 4x32-10 in the authors' Random123 (tests/kat_vectors).
  using Block = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const auto ones = ~std::uint64_t{0};
  EXPECT_EQ(philox(ones, ones, ones), (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, TheSameSeedGivesTheSameStream) {
  Rng a(5), b(5), other(6);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const auto x = a.bits();
    EXPECT_EQ(x, b.bits());
    differs |= x != other.bits();
  }
  EXPECT_TRUE(differs);
}

TEST(Random, SeedAndPositionAreTheWholeState) {
  Rng whole(7);
  whole.normal(), whole.uniform(), whole.below(10);
  Rng resumed(whole.seed(), whole.position());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(resumed.normal(), whole.normal());
}

TEST(Random, NumbersDoNotRepeat) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Rng rng(seed);
    for (int i = 0; i < 1000; ++i) seen.insert(rng.bits());
  }
  EXPECT_EQ(seen.size(), 10000U);
}

/// Mean of g over n numbers that draw gives.
template <class Draw, class G>
double mean_of(std::size_t n, Draw draw, G g) {
  double total = 0;
  for (std::size_t i = 0; i < n; ++i) total += g(draw());
  return total / static_cast<double>(n);
}

// Bounds of five standard deviations of a mean over n numbers: the seeds are fixed, so that the tests are too.
constexpr std::size_t n = 100'000;
double five_deviations(double variance) { return 5 * std::sqrt(variance / n); }

TEST(Random, UniformNumbersFillTheUnitInterval) {
  Rng rng(1);
  double least = 1, greatest = 0;
  const double mean = mean_of(
      n, [&] { return rng.uniform(); },
      [&](double u) {
        least = std::min(least, u), greatest = std::max(greatest, u);
        return u;
      });
  EXPECT_NEAR(mean, 0.5, five_deviations(1.0 / 12));
  EXPECT_GE(least, 0);
  EXPECT_LT(least, 1e-3);
  EXPECT_LT(greatest, 1);
  EXPECT_GT(greatest, 1 - 1e-3);
}

TEST(Random, NormalNumbersHaveTheMomentsOfTheNormalDistribution) {
  const double moments[] = {0, 1, 0, 3}, variances[] = {1, 2, 15, 96};  // of x, x^2, x^3, x^4
  for (int k = 1; k <= 4; ++k) {
    Rng rng(2);
    const double moment = mean_of(
        n, [&] { return rng.normal(); }, [k](double x) { return std::pow(x, k); });
    EXPECT_NEAR(moment, moments[k - 1], five_deviations(variances[k - 1])) << k;
  }
}

TEST(Random, NeighboursAreUncorrelated) {
  Rng rng(3);
  double last = rng.normal();
  const double correlation = mean_of(
      n, [&] { return rng.normal(); }, [&](double x) { return std::exchange(last, x) * x; });
  EXPECT_NEAR(correlation, 0, five_deviations(1));
  Rng one(10), next(11);  // neither are the streams of neighbouring seeds
  EXPECT_NEAR(mean_of(
                  n, [&] { return one.normal(); }, [&](double x) { return x * next.normal(); }),
              0, five_deviations(1));
}

TEST(Random, BelowIsFairAmongAll) {
  for (const std::uint64_t sides : {1U, 2U, 3U, 6U, 10U}) {
    Rng rng(sides);
    std::vector<double> counts(sides);
    for (std::size_t i = 0; i < n; ++i) {
      const auto side = rng.below(sides);
      ASSERT_LT(side, sides);
      ++counts[side];
    }
    const double p = 1.0 / static_cast<double>(sides);
    for (const double count : counts) EXPECT_NEAR(count / n, p, five_deviations(p * (1 - p)));
  }
}

TEST(Random, BelowLargeNumbersIsNotBiasedToTheLowerHalf) {
  // A plain remainder of 64 bits would fall below half of 3 * 2^62 in two cases out of three.
  const std::uint64_t large = std::uint64_t{3} << 62;
  Rng rng(4);
  const double low = mean_of(
      n, [&] { return rng.below(large); }, [&](std::uint64_t x) { return x < large / 2 ? 1 : 0; });
  EXPECT_NEAR(low, 0.5, five_deviations(0.25));
}

TEST(Random, BelowZeroIsRefused) {
  Rng rng;
  expect_message<Error>([&] { rng.below(0); }, {"[Rng::below]", "got 0"});
}

}  // namespace
}  // namespace xtape::random_test
