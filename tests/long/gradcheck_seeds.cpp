// No false alarm over many seeds: every op with all its elements, layers and models by 50 elements and 4 directions a
// tensor; and almost no element about which nothing can be said. XTAPE_SEEDS sets how many seeds, 200 unless it is set.

#include <chrono>
#include <iostream>

#include "gradient_check/entries.hpp"
#include "support.hpp"

namespace xtape {
namespace {

TEST(GradcheckSeeds, RaiseNoFalseAlarm) {
  const char* wanted = std::getenv("XTAPE_SEEDS");
  const std::uint64_t seeds = wanted != nullptr ? std::stoull(wanted) : 200;
  std::size_t checks = 0, tensors = 0, elements = 0, kinks = 0, inconclusive = 0, failed = 0;
  double worst = 0;
  const auto entries = examples::all_entries();
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    for (const auto& entry : entries) {
      examples::CheckSettings settings;
      settings.seed = seed;
      if (entry.kind != "op") settings.samples = 50, settings.directions = 4;
      for (const auto& check : entry.checks) {
        const GradcheckReport report = check.run(settings).report;
        EXPECT_TRUE(report) << entry.name << ' ' << check.variant << ", seed " << seed << '\n' << report;
        ++checks;
        failed += !report;
        for (const TensorReport& t : report.tensors) {
          ++tensors;
          elements += t.checked;
          kinks += t.kinks;
          inconclusive += t.inconclusive;
          if (t.reason == Reason::ok) worst = std::max(worst, t.worst.ratio());
        }
      }
    }
    if (seed % 20 == 19) std::cout << seed + 1 << " seeds: " << elements << " elements" << std::endl;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::cout << seeds << " seeds, " << entries.size() << " ops, layers and models: " << checks << " checks, " << tensors
            << " tensors, " << elements << " elements, " << failed << " false alarms, " << kinks << " at kinks, "
            << inconclusive << " inconclusive, largest difference " << worst << " bars, " << took.count() << " s\n";
  EXPECT_LT(10'000 * inconclusive, elements);
}

}  // namespace
}  // namespace xtape
