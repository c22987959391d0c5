// What tape.memory() reports, and how much a tape holds beyond what it uses.

#include "copy_task_step.hpp"

namespace xtape::tape_memory_test {
namespace {

constexpr std::size_t line = alignment;  // every array takes whole cache lines

TEST(TapeMemory, CountsTheValuesOfASmallGraphAsDoneByHand) {
  Tape<float> tape;
  EXPECT_EQ(tape.memory().values.now, 0u);
  const auto x = tape.input(random_array<float>({5, 7}, 1), true);  // 140 bytes: 3 lines
  EXPECT_EQ(tape.memory().values.now, 3 * line);
  const auto y = x * 2;  // a number and another (5, 7)
  EXPECT_EQ(tape.memory().values.now, (3 + 1 + 3) * line);
  reshape(y, {7, 5});  // shares
  EXPECT_EQ(tape.memory().values.now, 7 * line);
  tape.mask(ones_of<bool>({5, 13}));    // 65 bytes: 2 lines
  tape.integers(ones_of<int>({9}));     // 72 bytes: 2 lines
  tape.input(zeros_of<float>({0, 3}));  // nothing
  EXPECT_EQ(tape.memory().values.now, 11 * line);
  EXPECT_EQ(tape.memory().values.peak, 11 * line);
  EXPECT_EQ(tape.memory().saved.now, 0u);
}

TEST(TapeMemory, CountsSavedNumbersApart) {
  Tape<double> tape;
  tape.scratch(9);
  EXPECT_EQ(tape.memory().saved.now, 2 * line);
  EXPECT_EQ(tape.memory().values.now, 0u);
}

TEST(TapeMemory, CountsGradientsAndShowsThatIntermediateOnesGoBack) {
  Tape<double> tape;
  const auto x = tape.input(ones_of<double>({8}), true);  // 1 line
  Var<double> y = x;
  for (int i = 0; i < 10; ++i) y = exp(y * 0.1);
  tape.backward(sum(y));
  EXPECT_EQ(tape.memory().gradients.now, line) << "the input's own";
  EXPECT_EQ(tape.memory().gradients.peak, 2 * line) << "two neighbours at a time";
}

TEST(TapeMemory, CountsTheRecord) {
  Tape<double> tape;
  const auto x = tape.input(1.0, true);
  const std::size_t before = tape.memory().record.now;
  const auto y = x * x;
  EXPECT_GT(tape.memory().record.now, before);
  EXPECT_EQ(tape.size(), 2u);
  EXPECT_EQ(y.item(), 1);
}

TEST(TapeMemory, HighWaterMarksStayAfterClear) {
  Tape<double> tape;
  const auto x = tape.input(ones_of<double>({1000}), true);
  tape.backward(sum(exp(x)));
  tape.scratch(100);
  const auto before = tape.memory();
  tape.clear();
  const auto after = tape.memory();
  for (const auto& [was, is] : {std::pair(before.values, after.values),
                                {before.saved, after.saved},
                                {before.record, after.record},
                                {before.gradients, after.gradients}}) {
    EXPECT_GT(was.peak, 0u);
    EXPECT_EQ(is.peak, was.peak);
    EXPECT_EQ(is.now, 0u);
  }
}

TEST(TapeMemory, IsMergedAtClearAndThenHolds) {
  CopyTaskStep step(1);
  step(0);
  step.tape.clear();
  const std::size_t reserved = step.tape.memory().reserved;
  for (int i = 0; i < 5; ++i) step(0);
  step.tape.clear();
  EXPECT_EQ(step.tape.memory().reserved, reserved) << "the same step again needs no more";
}

/// What a step of the default model holds from the heap, and what of it is in use at its peaks.
struct Held {
  double reserved, used;
};
Held held(const CopyTaskStep& step) {
  const MemoryUse m = step.tape.memory();
  const std::size_t weights = count(step.list) * sizeof(float), with_gradients_and_moments = 4 * weights;
  const std::size_t peaks = m.values.peak + m.saved.peak + m.record.peak + m.gradients.peak;
  return {static_cast<double>(m.reserved + with_gradients_and_moments),
          static_cast<double>(peaks + with_gradients_and_moments)};
}

TEST(TapeMemory, HoldsAtMostAQuarterMoreThanItUses) {
  CopyTaskStep step(50);
  step(0);
  EXPECT_LE(held(step).reserved, 1.25 * held(step).used) << "in the first step";
  step.tape.clear();
  EXPECT_LE(held(step).reserved, 1.25 * held(step).used) << "after the first step";
  for (std::size_t i = 1; i < 50; ++i) step(i);
  EXPECT_LE(held(step).reserved, 1.25 * held(step).used) << "after fifty steps of all lengths";
}

}  // namespace
}  // namespace xtape::tape_memory_test
