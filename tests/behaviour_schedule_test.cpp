// Learning rates at their ends (case O29).

#include <limits>

#include "behaviour.hpp"

namespace xtape::behaviour_schedule_test {
namespace {

TEST(Behaviour, O29_ScheduleEndPoints) {
  const WarmupCosineSchedule schedule{.rate = 1, .warmup = 4, .total = 10};
  const double right[] = {.25, .5, .75, 1, 1, .9330127019, .75, .5, .25, .0669872981, 0, 0, 0};
  for (std::uint64_t s = 0; s < std::size(right); ++s)
    EXPECT_NEAR(schedule(s), right[s], tolerance::behaviour_double) << s;
  EXPECT_EQ(schedule(10), 0.0);
  EXPECT_EQ(schedule(~std::uint64_t{0}), 0.0);
  EXPECT_EQ(ConstantSchedule{.rate = .5}(1000), .5);
}

constexpr std::uint64_t last_step = ~std::uint64_t{0};

/// Checks that a schedule rises to its peak, falls or stays from there on, stays between floor and rate, and ends at
/// the floor from step `end` on.
template <class Schedule>
void expect_rise_and_fall(const Schedule& schedule, double rate, double floor, std::uint64_t end) {
  bool falling = false;
  for (std::uint64_t s = 0; s < end + 20; ++s) {
    EXPECT_GT(schedule(s), 0.0) << s;  // no batch is wasted at rate 0
    EXPECT_LE(schedule(s), rate) << s;
    EXPECT_TRUE(s < end || schedule(s) == floor) << s;
    falling |= schedule(s + 1) <= schedule(s);
    EXPECT_TRUE(!falling || schedule(s + 1) <= schedule(s)) << s;
  }
  EXPECT_EQ(schedule(last_step), floor);
}

TEST(Behaviour, O29_SchedulesRiseToThePeakAndNeverAgain) {
  for (const std::uint64_t total : {0, 1, 2, 10, 1000})
    for (const std::uint64_t warmup : {0, 1, 4, 10, 12}) {
      SCOPED_TRACE(fmt::format("warmup {}, total {}", warmup, total));
      const std::uint64_t end = std::max(warmup, total);
      const WarmupCosineSchedule cosine{.rate = .3, .warmup = warmup, .total = total, .floor = .03};
      const WarmupLinearSchedule linear{.rate = .3, .warmup = warmup, .total = total, .floor = .03};
      expect_rise_and_fall(cosine, .3, .03, end);
      expect_rise_and_fall(linear, .3, .03, end);
      EXPECT_TRUE(warmup == 0 || (cosine(warmup - 1) == .3 && linear(warmup - 1) == .3));
      if (warmup < total) {
        EXPECT_EQ(cosine(warmup), .3);
        EXPECT_EQ(linear(warmup), .3);
      }
    }
}

TEST(Behaviour, O29_OneCycle) {
  for (const std::uint64_t total : {0, 1, 2, 3, 10, 1000})
    for (const double fraction : {0., .001, .1, .3, .5, 1.}) {
      SCOPED_TRACE(fmt::format("total {}, warm-up {}", total, fraction));
      const OneCycleSchedule schedule{.rate = .3, .total = total, .warmup_fraction = fraction};
      const bool ends_at_the_peak = fraction == 1 && total > 0;
      expect_rise_and_fall(schedule, .3, .3 / 25 / 1e4,
                           ends_at_the_peak ? total : std::max(total, std::uint64_t{1}) - 1);
      EXPECT_TRUE(!ends_at_the_peak || schedule(total - 1) == .3);
    }
  EXPECT_EQ((OneCycleSchedule{.rate = 1, .total = 20, .warmup_fraction = .25}(4)), 1.0);
  EXPECT_EQ((OneCycleSchedule{.rate = 1, .total = 20, .warmup_fraction = .25}(0)), 1 / 25.);
}

TEST(Behaviour, O29_InverseSquareRoot) {
  for (const std::uint64_t warmup : {0, 1, 2, 5, 4000}) {
    SCOPED_TRACE(fmt::format("warmup {}", warmup));
    const std::uint64_t peak = std::max<std::uint64_t>(warmup, 1);
    const InverseSquareRootSchedule schedule{.factor = 2, .width = 64, .warmup = warmup};
    EXPECT_DOUBLE_EQ(schedule(peak - 1), 2 / std::sqrt(64. * static_cast<double>(peak)));
    for (std::uint64_t s = 0; s + 1 < peak; ++s) EXPECT_LT(schedule(s), schedule(s + 1)) << s;
    for (std::uint64_t s = peak - 1; s < 2 * peak + 20; ++s) EXPECT_GT(schedule(s), schedule(s + 1)) << s;
    EXPECT_DOUBLE_EQ(schedule(4 * peak - 1), schedule(peak - 1) / 2);
    EXPECT_GT(schedule(last_step), 0);
    EXPECT_LT(schedule(last_step), 1e-9);
  }
}

TEST(Behaviour, O29_Stairs) {
  const StepSchedule schedule{.rate = 1, .size = 3, .factor = .5, .floor = .2};
  const double right[] = {1, 1, 1, .5, .5, .5, .25, .25, .25, .2, .2};
  for (std::uint64_t s = 0; s < std::size(right); ++s) EXPECT_EQ(schedule(s), right[s]) << s;
  EXPECT_EQ(schedule(last_step), .2);
  EXPECT_EQ((StepSchedule{.rate = 1, .size = 1, .factor = 0}(0)), 1.0);
  EXPECT_EQ((StepSchedule{.rate = 1, .size = 1, .factor = 0}(1)), 0.0);
}

TEST(Behaviour, O29_SettingsThatMakeNoScheduleAreRefused) {
  const auto refused = [](auto schedule, const char* part) { expect_message<Error>([&] { schedule(0); }, {part}); };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double bad : {-1., nan, std::numeric_limits<double>::infinity()}) {
    refused(WarmupCosineSchedule{.rate = bad, .total = 9}, "[WarmupCosineSchedule]");
    refused(WarmupLinearSchedule{.rate = bad, .total = 9}, "[WarmupLinearSchedule]");
    refused(InverseSquareRootSchedule{.factor = bad}, "[InverseSquareRootSchedule]");
    refused(OneCycleSchedule{.rate = bad, .total = 9}, "[OneCycleSchedule]");
    refused(StepSchedule{.rate = bad}, "[StepSchedule]");
  }
  refused(WarmupLinearSchedule{.rate = .1, .total = 9, .floor = .2}, "floor <= rate");
  refused(WarmupCosineSchedule{.rate = .1, .total = 9, .floor = -.1}, "floor <= rate");
  refused(InverseSquareRootSchedule{.width = 0}, "width");
  refused(OneCycleSchedule{.total = 9, .warmup_fraction = 1.1}, "warmup_fraction");
  refused(OneCycleSchedule{.total = 9, .start_divisor = .5}, "divisors");
  refused(OneCycleSchedule{.total = 9, .end_divisor = nan}, "divisors");
  refused(StepSchedule{.size = 0}, "size");
  refused(StepSchedule{.factor = 1.5}, "factor");
}

}  // namespace
}  // namespace xtape::behaviour_schedule_test
