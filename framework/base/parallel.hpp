#pragma once
// The one place that knows threads.

#include <cstddef>
#include <type_traits>

namespace xtape {

/// Number of threads that parallel loops use from now on; at least 1, and it may exceed the processors. The default is
/// the number of processors that the process may use. Results do not depend on it, to the last bit. To be called
/// while no other thread computes.
void set_threads(int n);
int threads();

namespace detail {
using Piece = void (*)(void* context, std::size_t piece, std::size_t worker);
void run_pieces(std::size_t pieces, Piece run, void* context);
}  // namespace detail

/// Calls f(piece, worker) once for every piece in [0, pieces), in any order, on up to threads() threads; worker, below
/// threads(), numbers the thread, so that it can have scratch memory of its own. A call from inside a piece runs
/// serially. If pieces throw, one of the exceptions reaches the caller after all pieces have ended.
///
/// A thread begins with its own stretch of the pieces, the same in every loop: where loops are cut alike, by rows say,
/// it finds in its cache what it wrote in the loop before.
///
/// To keep results independent of the number of threads, cut the work into pieces of a fixed size, let no two pieces
/// write the same number, and add partial sums afterwards in the order of the pieces.
template <class F>
void parallel_for(std::size_t pieces, F&& f) {
  using Function = std::remove_reference_t<F>;
  detail::run_pieces(
      pieces,
      [](void* context, std::size_t piece, std::size_t worker) { (*static_cast<Function*>(context))(piece, worker); },
      const_cast<std::remove_const_t<Function>*>(&f));
}

/// parallel_for over [0, n) in chunks of `chunk`: f(begin, end).
template <class F>
void parallel_chunks(std::size_t n, std::size_t chunk, F&& f) {
  parallel_for((n + chunk - 1) / chunk, [&](std::size_t piece, std::size_t) {
    const std::size_t begin = piece * chunk;
    f(begin, begin + chunk < n ? begin + chunk : n);
  });
}

}  // namespace xtape
