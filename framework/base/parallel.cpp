// Threads come from oneTBB. Measured beside OpenMP on two cores, loops of 20 us cost the same on an idle machine; when
// another process takes a core, OpenMP's barrier waits 4 to 12 ms for the thread that lost it, while here the caller
// takes the pieces that no worker came for, so a loop costs about as much as a serial one.

#include <xtape/framework/base/parallel.hpp>

#include <tbb/global_control.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <xtape/framework/base/error.hpp>

// TBB's library is not instrumented for ThreadSanitizer, so in such a build this file is not either and tells the
// sanitizer what orders what: the caller before the pieces, the pieces before the caller, and nothing between pieces.
extern "C" {
[[gnu::weak]] void __tsan_acquire(void*);
[[gnu::weak]] void __tsan_release(void*);
}

namespace xtape {
namespace {

constexpr int outside = -1;
thread_local int current_worker = outside;

/// While it lives, this thread is inside of a loop as the given worker.
class Inside {
 public:
  explicit Inside(int worker) : before_(std::exchange(current_worker, worker)) {}
  ~Inside() { current_worker = before_; }

 private:
  int before_;
};

/// Pieces that one thread begins with, in their order.
struct alignas(64) Share {
  std::atomic<std::size_t> next{0};
  std::size_t end = 0;
  std::atomic<bool> taken_up{false};  // by the thread whose share it is

  /// How many pieces nobody has begun.
  std::size_t left() const {
    const std::size_t at = next.load(std::memory_order_relaxed);
    return at < end ? end - at : 0;
  }
};

struct Job {
  std::span<Share> shares;  // one for each worker
  detail::Piece run;
  void* context;
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  char begin = 0, end = 0;  // addresses for the sanitizer
};

/// Takes the pieces of the worker's own share, then what is left of the others'. A thread has the same part of every
/// loop as far as that goes, so that it finds in its caches what it wrote in the loop before; hence the last piece is
/// not taken from a thread that is at work: it would come next to it anyway.
void work(Job& job, int worker) noexcept {
  const std::size_t workers = job.shares.size(), mine = static_cast<std::size_t>(worker);
  bool began = false;
  const Inside inside(worker);
  try {
    for (std::size_t k = 0; k < workers; ++k) {
      Share& share = job.shares[(mine + k) % workers];
      if (k == 0) share.taken_up.store(true, std::memory_order_relaxed);
      const auto least = [&] { return k > 0 && share.taken_up.load(std::memory_order_relaxed) ? 2u : 1u; };
      while (share.left() >= least()) {
        const std::size_t piece = share.next.fetch_add(1, std::memory_order_relaxed);
        if (piece >= share.end) break;
        if (__tsan_acquire && !began) __tsan_acquire(&job.begin);
        began = true;
        job.run(job.context, piece, mine);
      }
    }
  } catch (...) {
    for (Share& share : job.shares) share.next.store(share.end, std::memory_order_relaxed);
    if (!job.failed.exchange(true)) job.error = std::current_exception();
  }
  if (__tsan_release && began) __tsan_release(&job.end);
}

struct Threads {
  std::mutex one_loop_at_a_time;
  std::atomic<int> count{std::max(1, tbb::info::default_concurrency())};
  std::optional<tbb::global_control> limit;  // TBB takes the least of all limits, so an old one must go first
  std::optional<tbb::task_arena> arena;
  std::vector<Share> shares;
};
Threads& pool() {
  static Threads* threads = new Threads;  // never destroyed, so that destructors of static objects may still run loops
  return *threads;
}

}  // namespace

int threads() { return pool().count.load(std::memory_order_relaxed); }

void set_threads(int n) {
  require(n >= 1, "[set_threads] expected at least 1 thread, got {}", n);
  require(current_worker == outside, "[set_threads] expected a call from outside of parallel loops");
  const std::lock_guard guard(pool().one_loop_at_a_time);
  if (n == threads()) return;
  pool().arena.reset();
  pool().limit.reset();
  pool().count = n;
}

void detail::run_pieces(std::size_t pieces, Piece run, void* context) {
  const auto serially = [&](int worker) {
    const Inside inside(worker);
    for (std::size_t piece = 0; piece < pieces; ++piece) run(context, piece, static_cast<std::size_t>(worker));
  };
  if (current_worker != outside) return serially(current_worker);
  if (pieces <= 1 || threads() == 1) return serially(0);

  const std::lock_guard guard(pool().one_loop_at_a_time);
  const int n = threads();
  if (!pool().arena) {
    pool().limit.emplace(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(n));
    pool().arena.emplace(n, 1);
    pool().shares = std::vector<Share>(static_cast<std::size_t>(n));
  }
  std::vector<Share>& shares = pool().shares;
  for (std::size_t i = 0, first = 0; i < shares.size(); first = shares[i++].end) {
    shares[i].next.store(first, std::memory_order_relaxed);
    shares[i].end = pieces * (i + 1) / shares.size();
    shares[i].taken_up.store(false, std::memory_order_relaxed);
  }
  Job job{.shares = shares, .run = run, .context = context, .error = {}};
  if (__tsan_release) __tsan_release(&job.begin);
  const int tasks = static_cast<int>(std::min(pieces, static_cast<std::size_t>(n)));
  pool().arena->execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<int>(0, tasks, 1),
        [&](const tbb::blocked_range<int>&) { work(job, tbb::this_task_arena::current_thread_index()); },
        tbb::simple_partitioner());
  });
  if (__tsan_acquire) __tsan_acquire(&job.end);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace xtape
