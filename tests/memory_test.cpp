// The two kinds of memory of a tape. Random sequences of sizes, checked against the rules that both promise: blocks are
// aligned, do not overlap, and once a round has been seen the next one needs no more from the heap.

#include <gtest/gtest-spi.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "support.hpp"

namespace xtape::memory_test {
namespace {

struct Allocation {
  std::byte* data;
  std::size_t size;
};

/// Keeps what is allocated now, filled with a mark of its own, and reports overlaps.
class Watch {
 public:
  void add(void* p, std::size_t size) {
    const Allocation a{static_cast<std::byte*>(p), size};
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p) % alignment, 0u);
    const auto next = live_.lower_bound(a.data);
    if (next != live_.end()) {
      EXPECT_LE(a.data + size, next->second.data);
    }
    if (next != live_.begin()) {
      EXPECT_LE(std::prev(next)->second.data + std::prev(next)->second.size, a.data);
    }
    std::memset(p, static_cast<int>(size % 251), size);
    if (size > 0) live_[a.data] = a;
  }
  void remove(const Allocation& a) {
    check(a);
    live_.erase(a.data);
  }
  void check_all() const {
    for (const auto& [address, a] : live_) check(a);
  }
  void clear() { live_.clear(); }

 private:
  static void check(const Allocation& a) {
    const auto mark = static_cast<std::byte>(a.size % 251);
    EXPECT_TRUE(std::all_of(a.data, a.data + a.size, [&](std::byte b) { return b == mark; }))
        << "a block of " << a.size << " bytes was written by another one";
  }
  std::map<std::byte*, Allocation> live_;
};

/// Sizes from 0 to 100 kB, most of them small.
std::size_t random_size(Rng& rng) { return rng.below(10) == 0 ? rng.below(100000) : rng.below(300); }

TEST(Watch, NoticesOverlapAndForeignWrites) {
  alignas(alignment) static std::byte memory[4 * alignment];
  EXPECT_NONFATAL_FAILURE(
      {
        Watch watch;
        watch.add(memory, 2 * alignment);
        watch.add(memory + alignment, 10);
      },
      "<=");
  EXPECT_NONFATAL_FAILURE(
      {
        Watch watch;
        watch.add(memory, 2 * alignment);
        memory[5] = std::byte{0};
        watch.check_all();
      },
      "written by another one");
}

void fill_arena(Arena& arena, std::uint64_t seed, Watch& watch) {
  Rng rng(seed);
  for (int i = 0; i < 400; ++i) {
    const std::size_t size = random_size(rng);
    watch.add(arena.allocate(size), size);
  }
  watch.check_all();
}

TEST(Arena, BlocksAreAlignedAndNeverOverlap) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Arena arena;
    Watch watch;
    fill_arena(arena, seed, watch);
  }
}

TEST(Arena, HonoursSmallerAlignments) {
  Arena arena;
  for (std::size_t align : {1, 2, 4, 8, 16, 32, 64}) {
    arena.allocate(1, 1);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.allocate(3, align)) % align, 0u);
  }
}

TEST(Arena, IsOneBlockAfterClearAndTheSameRoundNeedsNoMore) {
  Arena arena;
  Watch watch;
  fill_arena(arena, 1, watch);
  const std::size_t peak = arena.peak();
  arena.clear();
  EXPECT_EQ(arena.used(), 0u);
  EXPECT_EQ(arena.reserved(), align_up(peak)) << "the blocks were merged into one of the most in use";
  for (int round = 0; round < 3; ++round) {
    watch.clear();
    fill_arena(arena, 1, watch);
    EXPECT_EQ(arena.reserved(), align_up(peak)) << "in round " << round;
    arena.clear();
  }
}

TEST(Arena, ASmallerRoundNeedsNoMoreAndALargerOneDoes) {
  Arena arena;
  arena.allocate(200000);
  arena.allocate(300000);
  arena.clear();
  const std::size_t reserved = arena.reserved();
  for (int i = 0; i < 7; ++i) arena.allocate(70000);
  EXPECT_EQ(arena.reserved(), reserved);
  arena.allocate(70000);
  EXPECT_GT(arena.reserved(), reserved);
}

TEST(Arena, ReleaseGivesBackWhatCameAfterTheMark) {
  Arena arena;
  Watch watch;
  watch.add(arena.allocate(100), 100);
  const auto mark = arena.mark();
  const std::size_t used = arena.used();
  void* const first = arena.allocate(1000);
  for (int i = 0; i < 50; ++i) arena.allocate(50000);  // over several blocks
  const std::size_t reserved = arena.reserved();
  arena.release(mark);
  EXPECT_EQ(arena.used(), used);
  EXPECT_EQ(arena.allocate(1000), first);
  for (int round = 0; round < 100; ++round) {
    arena.release(mark);
    for (int i = 0; i < 50; ++i) arena.allocate(50000);
  }
  EXPECT_EQ(arena.reserved(), reserved) << "rounds after a mark use the same memory again";
  watch.check_all();
}

/// Allocates and frees in random order, as a backward pass does, and frees all at the end.
void churn(Pool& pool, std::uint64_t seed) {
  Rng rng(seed);
  Watch watch;
  std::vector<Allocation> live;
  for (int i = 0; i < 600; ++i) {
    if (live.empty() || rng.below(5) < 3) {
      const std::size_t size = random_size(rng);
      void* p = pool.allocate(size);
      watch.add(p, size);
      live.push_back({static_cast<std::byte*>(p), size});
    } else {
      std::swap(live[rng.below(live.size())], live.back());
      watch.remove(live.back());
      pool.free(live.back().data, live.back().size);
      live.pop_back();
    }
  }
  watch.check_all();
  for (const Allocation& a : live) pool.free(a.data, a.size);
}

TEST(Pool, BlocksAreAlignedAndNeverOverlap) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Pool pool;
    for (int round = 0; round < 3; ++round) {
      churn(pool, seed + 100 * static_cast<std::uint64_t>(round));
      EXPECT_EQ(pool.used(), 0u) << "what was allocated and freed cancels";
      pool.clear();
    }
  }
}

TEST(Pool, ARoundThatHasBeenSeenSoonNeedsNoMore) {
  // The first block is sized by the peak, gaps between sizes may ask for more once or twice; then it holds.
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Pool pool;
    for (int round = 0; round < 3; ++round) churn(pool, seed), pool.clear();
    const std::size_t reserved = pool.reserved();
    for (int round = 0; round < 5; ++round) {
      churn(pool, seed);
      EXPECT_EQ(pool.reserved(), reserved) << "seed " << seed << " round " << round;
      pool.clear();
    }
  }
}

TEST(Pool, WhatIsFreedIsJoinedAndServedAgain) {
  Pool pool;
  pool.allocate(10 * alignment);
  pool.clear();
  const std::size_t reserved = pool.reserved();
  // Freed in every order, eight neighbours must become one range again.
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    std::vector<void*> parts;
    for (int i = 0; i < 8; ++i) parts.push_back(pool.allocate(alignment));
    while (!parts.empty()) {
      std::swap(parts[rng.below(parts.size())], parts.back());
      pool.free(parts.back(), alignment);
      parts.pop_back();
    }
    void* const whole = pool.allocate(reserved);
    ASSERT_EQ(pool.reserved(), reserved) << "seed " << seed << ": the parts were not joined";
    pool.free(whole, reserved);
  }
}

TEST(Pool, ASizeComesBackToItsPlace) {
  constexpr std::size_t large = 40 * alignment, small = 30 * alignment;
  Pool pool;
  pool.allocate(large + small);
  pool.clear();
  void* const place = pool.allocate(large);
  for (int round = 0; round < 3; ++round) {
    pool.free(place, large);
    void* const other = pool.allocate(small);  // would fit there, too
    EXPECT_EQ(pool.allocate(large), place);
    pool.free(other, small);
  }
}

TEST(Pool, ClearForgetsWhatWasNotFreed) {
  Pool pool;
  for (int round = 0; round < 100; ++round) {
    pool.allocate(5000);
    pool.allocate(0);
    pool.clear();
  }
  EXPECT_EQ(pool.used(), 0u);
  EXPECT_EQ(pool.peak(), 5056u + 64u);
  EXPECT_LE(pool.reserved(), 2 * pool.peak());
}

}  // namespace
}  // namespace xtape::memory_test
