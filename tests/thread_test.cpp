// parallel_for, and that results do not depend on the number of threads. Also run under ThreadSanitizer.

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "support.hpp"

namespace xtape::thread_test {
namespace {

/// Leaves the number of threads as it was.
class Threads : public testing::Test {
 protected:
  void TearDown() override { set_threads(before_); }

 private:
  int before_ = threads();
};

TEST_F(Threads, EveryPieceRunsOnceWithAWorkerBelowTheNumberOfThreads) {
  for (const int n : {1, 2, 3, 4, 16}) {
    set_threads(n);
    ASSERT_EQ(threads(), n);
    for (const std::size_t pieces : {0, 1, 2, 3, 17, 1000}) {
      std::vector<int> runs(pieces, 0);  // not atomic: no two pieces touch the same number
      std::atomic<std::size_t> highest_worker = 0;
      parallel_for(pieces, [&](std::size_t piece, std::size_t worker) {
        ++runs.at(piece);
        std::size_t highest = highest_worker;
        while (worker > highest && !highest_worker.compare_exchange_weak(highest, worker)) {
        }
      });
      EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), static_cast<std::ptrdiff_t>(pieces));
      EXPECT_LT(highest_worker, static_cast<std::size_t>(n));
    }
  }
}

TEST_F(Threads, AWorkerRunsOnePieceAtATimeSoItsScratchIsItsOwn) {
  set_threads(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<int> collisions = 0;
  parallel_for(2000, [&](std::size_t, std::size_t worker) {
    if (++inside.at(worker) != 1) ++collisions;
    --inside.at(worker);
  });
  EXPECT_EQ(collisions, 0);
}

TEST_F(Threads, SeveralThreadsTakePart) {
  set_threads(2);
  // The first piece waits for another one, so this ends only if a second thread comes; a thread that comes late is
  // still in time.
  std::atomic<int> started = 0;
  parallel_for(2, [&](std::size_t, std::size_t) {
    ++started;
    while (started < 2) std::this_thread::yield();
  });
  EXPECT_EQ(started, 2);
}

TEST_F(Threads, ACallFromInsideAPieceRunsSeriallyOnTheSameWorker) {
  set_threads(4);
  std::vector<std::vector<std::size_t>> order(8);
  std::atomic<int> strangers = 0;
  parallel_for(order.size(), [&](std::size_t piece, std::size_t worker) {
    const auto thread = std::this_thread::get_id();
    parallel_for(5, [&](std::size_t inner, std::size_t inner_worker) {
      if (inner_worker != worker || std::this_thread::get_id() != thread) ++strangers;
      order[piece].push_back(inner);
    });
  });
  EXPECT_EQ(strangers, 0);
  for (const auto& inner : order) EXPECT_EQ(inner, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

TEST_F(Threads, AnExceptionOfAPieceReachesTheCallerAndTheNextLoopRuns) {
  for (const int n : {1, 4}) {
    set_threads(n);
    const auto failing = [](std::size_t piece, std::size_t) {
      require<ShapeError>(piece != 37, "[piece] number {} fails", piece);
    };
    for (int repetition = 0; repetition < 10; ++repetition) {
      expect_message<ShapeError>([&] { parallel_for(100, failing); }, {"[piece] number 37 fails"});
      // Inside a piece as well, and from there to the outermost caller.
      const auto nested = [&](std::size_t, std::size_t) { parallel_for(100, failing); };
      expect_message<ShapeError>([&] { parallel_for(4, nested); }, {"[piece] number 37 fails"});
      std::atomic<int> pieces = 0;
      parallel_for(100, [&](std::size_t, std::size_t) { ++pieces; });
      EXPECT_EQ(pieces, 100);
    }
  }
}

TEST_F(Threads, NumbersOfThreadsThatMakeNoSenseAreRefused) {
  set_threads(2);
  expect_message<Error>([] { set_threads(0); }, {"[set_threads]", "at least 1", "got 0"});
  expect_message<Error>([] { set_threads(-3); }, {"[set_threads]", "at least 1", "got -3"});
  const auto from_inside = [](std::size_t, std::size_t) { set_threads(3); };
  expect_message<Error>([&] { parallel_for(8, from_inside); }, {"[set_threads]", "outside of parallel loops"});
  EXPECT_EQ(threads(), 2);
  set_threads(1);
  expect_message<Error>([&] { parallel_for(8, from_inside); }, {"[set_threads]", "outside of parallel loops"});
  expect_message<Error>([&] { parallel_for(1, from_inside); }, {"[set_threads]", "outside of parallel loops"});
}

TEST_F(Threads, LoopsOfSeveralThreadsOfTheUserDoNotMix) {
  set_threads(2);
  std::vector<std::vector<int>> runs(3, std::vector<int>(64, 0));
  std::vector<std::thread> users;
  for (auto& mine : runs)
    users.emplace_back([&mine] {
      for (int repetition = 0; repetition < 50; ++repetition)
        parallel_for(mine.size(), [&](std::size_t piece, std::size_t) { ++mine[piece]; });
    });
  for (std::thread& user : users) user.join();
  for (const auto& mine : runs) EXPECT_EQ(std::count(mine.begin(), mine.end(), 50), 64);
}

TEST_F(Threads, ChunksCoverTheRangeOnce) {
  set_threads(2);
  for (const std::size_t n : {0, 1, 7, 8, 9, 100}) {
    std::vector<int> covered(n, 0);
    parallel_chunks(n, 8, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) ++covered.at(i);
    });
    EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), static_cast<std::ptrdiff_t>(n));
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int repetitions = 3;  // each takes up to thirty times as long
#else
constexpr int repetitions = 20;
#endif

#ifdef __SANITIZE_THREAD__
TEST_F(Threads, ARaceBetweenPiecesIsSeenByThreadSanitizer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto race = [] {
    set_threads(2);
    int sum = 0;
    std::atomic<int> started = 0;
    parallel_for(2, [&](std::size_t, std::size_t) {
      started.fetch_add(1, std::memory_order_relaxed);
      while (started.load(std::memory_order_relaxed) < 2) std::this_thread::yield();
      ++sum;
    });
  };
  EXPECT_DEATH(race(), "data race");
}
#endif

/// Loss, gradients and updated weights of three training steps, all in one row.
std::vector<float> three_training_steps() {
  Rng rng(3);
  TransformerLm<float> model(
      {.vocabulary = 29, .length = 40, .width = 32, .heads = 4, .layers = 2, .block = {.dropout = 0.1}}, rng);
  AdamW<float> optimizer(parameters<float>(model), {.learning_rate = 1e-2});
  Tape<float> tape(5);
  const std::size_t batch = 16, time = 40;
  xt::xarray<int> tokens = xt::zeros<int>({batch, time}), targets = tokens, lengths = xt::zeros<int>({batch});
  for (int& token : tokens) token = static_cast<int>(rng.below(29));
  for (int& target : targets) target = static_cast<int>(rng.below(29));
  for (int& length : lengths) length = static_cast<int>(rng.below(time + 1));

  std::vector<float> numbers;
  for (std::uint64_t step = 0; step < 3; ++step) {
    tape.clear();
    tape.set_step(step);
    optimizer.zero_grad();
    Var<float> loss = cross_entropy(model(tape, tokens, {.allow_keys = tape.lengths(lengths, time)}), targets);
    tape.backward(loss);
    clip_grad_norm(optimizer.parameters(), 1);
    numbers.push_back(loss.item());
    for (auto& entry : optimizer.parameters()) {
      const float* grad = entry.parameter.grad_data();
      numbers.insert(numbers.end(), grad, grad + entry.parameter.size());
    }
    optimizer.step();
    for (auto& entry : optimizer.parameters())
      numbers.insert(numbers.end(), entry.parameter.data(), entry.parameter.data() + entry.parameter.size());
  }
  return numbers;
}

TEST_F(Threads, O35TrainingStepsHaveTheSameBitsForAnyNumberOfThreadsAndEveryRepetition) {
  set_threads(1);
  const std::vector<float> serial = three_training_steps();
  ASSERT_GT(serial.size(), 60000u);
  for (const float x : serial) ASSERT_TRUE(std::isfinite(x));
  for (const int n : {1, 2, 4, 8}) {
    set_threads(n);
    for (int repetition = 0; repetition < repetitions; ++repetition)
      ASSERT_TRUE(three_training_steps() == serial) << n << " threads, repetition " << repetition;
  }
}

/// Output and gradients of an attention whose heads share keys and whose bias lacks axes, all in one row.
std::vector<float> biased_attention(AttentionKernel kernel, std::size_t time, const Shape& bias_shape) {
  constexpr std::size_t batch = 5, heads = 6, kv_heads = 2, width = 8;
  Tape<float> tape;
  const Var<float> q = tape.input(random_array<float>({batch, time, heads * width}, 1), true),
                   k = tape.input(random_array<float>({batch, time, kv_heads * width}, 2), true),
                   v = tape.input(random_array<float>({batch, time, kv_heads * width}, 3), true),
                   bias = tape.input(random_array<float>(bias_shape, 4), true);
  const Var<float> y = attention(rope(q, heads), rope(k, kv_heads), v, heads,
                                 {.causal = true,
                                  .bias = bias,
                                  .window = time - time / 3,
                                  .dropout = 0.1,
                                  .kv_heads = kv_heads,
                                  .kernel = kernel});
  tape.backward(y, random_array<float>(y.shape(), 5));
  std::vector<float> numbers(y.data(), y.data() + y.size());
  for (const Var<float>& x : {q, k, v, bias}) {
    const xt::xarray<float> grad = gradient(x);
    numbers.insert(numbers.end(), grad.begin(), grad.end());
  }
  return numbers;
}

void expect_same_bits(AttentionKernel kernel, std::size_t time, int times) {
  for (const Shape& shape : {Shape{time, time}, Shape{5, time, time}, Shape{1, 6, 1, time}, Shape{5, 6, time, time}}) {
    set_threads(1);
    const std::vector<float> serial = biased_attention(kernel, time, shape);
    for (const float x : serial) ASSERT_TRUE(std::isfinite(x));
    for (const int n : {2, 4, 8}) {
      set_threads(n);
      for (int repetition = 0; repetition < times; ++repetition)
        ASSERT_TRUE(biased_attention(kernel, time, shape) == serial) << n << " threads, repetition " << repetition;
    }
  }
}

TEST_F(Threads, O35AttentionWithABiasAndSharedHeadsHasTheSameBitsForAnyNumberOfThreads) {
  expect_same_bits(AttentionKernel::materialised, 33, repetitions);
}
TEST_F(Threads, O35SoHasTheTiledKernel) { expect_same_bits(AttentionKernel::tiled, 150, 2); }

TEST_F(Threads, O35AnOrderOfSummationThatDependsOnThreadsWouldBeSeen) {
  const std::vector<float> x = {1e8f, 1, -1e8f, 1};
  set_threads(2);
  const auto chunked_sum = [&](std::size_t chunk) {
    std::vector<float> partial((x.size() + chunk - 1) / chunk, 0);
    parallel_chunks(x.size(), chunk, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) partial[begin / chunk] += x[i];
    });
    float sum = 0;
    for (const float part : partial) sum += part;
    return sum;
  };
  EXPECT_EQ(chunked_sum(4), 1.0f);
  EXPECT_EQ(chunked_sum(2), 0.0f);  // cut into as many chunks as threads, the sum changes
}

}  // namespace
}  // namespace xtape::thread_test
