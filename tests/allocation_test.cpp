// A training step takes nothing from the heap once a step of its size has been seen.

#include "allocation_counter.hpp"
#include "copy_task_step.hpp"

#include <cstdlib>
#include <memory>

namespace xtape::allocation_test {
namespace {

/// Hides a pointer from the optimizer, which may remove an allocation that nobody sees.
void see(const void* p) { asm volatile("" : : "r"(p) : "memory"); }

TEST(AllocationCounter, SeesEveryWayToTheHeap) {
  const auto sees = [](auto&& allocate) { return allocations_of([&] { see(allocate().get()); }); };
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  using Heap = std::unique_ptr<void, Free>;
  EXPECT_EQ(sees([] { return Heap(std::malloc(10)); }), 1u);
  EXPECT_EQ(sees([] { return Heap(std::calloc(2, 10)); }), 1u);
  EXPECT_EQ(sees([] { return Heap(std::realloc(nullptr, 10)); }), 1u);
  EXPECT_EQ(sees([] { return Heap(std::aligned_alloc(64, 64)); }), 1u);
  EXPECT_EQ(sees([] { return std::make_unique<int[]>(10); }), 1u);
  EXPECT_EQ(sees([] { return aligned_bytes(100); }), 1u);
  EXPECT_EQ(allocations_of([] {}), 0u);
}

TEST(AllocationCounter, SeesOneTemporaryOfXtensor) {
  xt::xarray<float> a = xt::ones<float>({4, 5}), b = xt::zeros<float>({4, 5});
  EXPECT_EQ(allocations_of([&] { xt::noalias(b) = a + 1.0f; }), 0u);
  EXPECT_EQ(allocations_of([&] { b = a + 1.0f; }), 1u) << "an assignment without noalias makes a temporary";
}

TEST(AllocationCounter, SeesWorkerThreads) {
  set_threads(2);
  EXPECT_GE(
      allocations_of([] { parallel_for(100, [](std::size_t, std::size_t) { see(std::make_unique<int>(1).get()); }); }),
      100u);
}

class Invariant : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, Invariant, testing::Values(1, 2));

TEST_P(Invariant, Nr8ATrainingStepAllocatesNothingOnceItsSizeHasBeenSeen) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::size_t measured = 20;  // sanitizers make a step many times slower
#else
  constexpr std::size_t measured = 1000;
#endif
  constexpr std::size_t warm_up = 50;
  set_threads(GetParam());
  CopyTaskStep step(warm_up + measured);
  std::size_t i = 0;
  EXPECT_GT(allocations_of([&] { step(i); }), 0u) << "the first step builds the memory";
  for (i = 1; i < warm_up; ++i) step(i);
  std::size_t total = 0, first = 0;
  for (; i < warm_up + measured; ++i) {
    const std::size_t count = allocations_of([&] { step(i); });
    if (count > 0 && total == 0) first = i;
    total += count;
  }
  EXPECT_EQ(total, 0u) << "the first of them in step " << first;
}

TEST(Allocation, CustomOpsInXtensorExpressionsMakeNoTemporaries) {
  set_threads(1);
  const xt::xarray<float> x = random_array<float>({8, 16}, 1);
  Tape<float> tape;
  const auto step = [&] {
    tape.clear();
    const auto in = tape.input(x, true);
    Var<float> y = tape.output("square", in.shape(), in);
    xt::noalias(y.value()) = xt::square(in.value());
    tape.on_backward(y, [in, y] { xt::noalias(in.grad()) += y.grad() * 2.0f * in.value(); });
    tape.backward(sum(y));
  };
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(allocations_of(step), 0u);
}

TEST(Allocation, InputsOfEveryKindGoStraightIntoTheTape) {
  set_threads(1);
  const xt::xarray<double> x = random_array<double>({4, 6}, 1);
  const xt::xarray<bool> mask = x > 0.0;
  const xt::xarray<int> tokens = xt::ones<int>({4, 6});
  const xt::xarray<std::size_t> lengths{1, 2, 3, 0};
  Tape<double> tape;
  const auto step = [&] {
    tape.clear();
    tape.input(x);
    tape.input(x + 1.0);
    tape.input(xt::transpose(x));
    tape.input(2.0);
    tape.mask(mask);
    tape.mask(x > 0.5);
    tape.integers(tokens);
    tape.lengths(lengths, 6);
  };
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(allocations_of(step), 0u);
}

TEST(Allocation, EvaluationInScopesAllocatesNothing) {
  set_threads(1);
  Rng rng(1);
  TransformerBlock<float> block(16, 2, rng);
  const xt::xarray<float> x = random_array<float>({2, 7, 16}, 1);
  Tape<float> tape;
  const auto evaluate = [&] {
    tape.clear();
    const auto guard = tape.no_grad();
    Var<float> y = tape.input(x);
    for (int i = 0; i < 5; ++i) {
      auto scope = tape.scope();
      y = scope.keep(block(y, {.causal = true}));
    }
  };
  for (int i = 0; i < 3; ++i) evaluate();
  EXPECT_EQ(allocations_of(evaluate), 0u);
}

TEST(Allocation, WhatComesAfterBackwardAllocatesNothing) {
  set_threads(1);
  Rng rng(1);
  TransformerLm<float> model({.vocabulary = 5, .length = 4, .width = 8, .heads = 2, .layers = 1}, rng);
  const auto list = parameters<float>(model);
  AdamW<float> adamw(list, {.groups = {{.name = "blocks.*", .learning_rate_factor = .5}}});
  Adam<float> adam(list);
  Sgd<float> sgd(list, {.momentum = .9, .nesterov = true});
  ExponentialMovingAverage<float> average(list);
  const xt::xarray<int> tokens = {{1, 2, 3, 4}};
  Tape<float> tape;
  const auto update = [&] {
    tape.clear();
    const Var<float> loss = cross_entropy(model(tape, tokens), tokens);
    tape.backward(loss);
    return allocations_of([&] {
      require_finite(loss, list);
      divide_grad(list, count_targets(tokens));
      clip_grad_norm(list, 1.0);
      adamw.step(), adam.step(), sgd.step();
      average.update();
      adamw.zero_grad();
    });
  };
  update();  // the first makes room for the list of pieces
  EXPECT_EQ(update(), 0u);
}

TEST(Allocation, ALargerStepAllocatesAndTheNextOfItsSizeDoesNot) {
  set_threads(1);
  Tape<float> tape;
  const auto step = [&](std::size_t n) {
    const xt::xarray<float> x = random_array<float>({n, n}, 1);
    return allocations_of([&] {
      tape.clear();
      const auto in = tape.input(x, true);
      tape.backward(sum(exp(in) * in));
    });
  };
  for (int i = 0; i < 3; ++i) step(20);
  EXPECT_EQ(step(20), 0u);
  EXPECT_GT(step(300), 0u);
  for (int i = 0; i < 2; ++i) step(300);
  EXPECT_EQ(step(300), 0u);
  EXPECT_EQ(step(20), 0u);
}

}  // namespace
}  // namespace xtape::allocation_test
