// A model of ten million parameters, checked by samples: seconds, and forward passes.

#include <chrono>
#include <iostream>

#include "support.hpp"

namespace xtape {
namespace {

TEST(GradcheckLargeModel, TenMillionParametersInHalfAMinute) {
  Rng rng(1);
  TransformerLm<double> model({.vocabulary = 512, .length = 8, .width = 512, .heads = 8, .layers = 3}, rng);
  const auto list = parameters<double>(model);
  ASSERT_GE(count(list), 9'900'000u);
  std::size_t forwards = 0;
  const xt::xarray<int> tokens = {{1, 44, 500, 3}}, targets = {{44, 500, 3, 7}};
  const auto loss = [&](Tape<double>& tape) {
    ++forwards;
    return cross_entropy(model(tape, tokens), targets);
  };
  const auto report_on = [&](const char* what, auto check) {
    forwards = 0;
    const auto begin = std::chrono::steady_clock::now();
    const GradcheckReport report = check();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_TRUE(report) << report;
    std::cout << what << ": " << count(list) << " parameters in " << list.size() << " tensors, " << forwards
              << " forward passes, " << took.count() << " s\n";
    return took.count();
  };
  EXPECT_LT(
      report_on("samples", [&] { return gradcheck(loss, {}, {.parameters = list, .samples = 2, .directions = 1}); }),
      30);
  EXPECT_LT(report_on("directions", [&] { return gradcheck_directions(loss, {}, {.parameters = list}); }), 30);
}

}  // namespace
}  // namespace xtape
