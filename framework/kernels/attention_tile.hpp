#pragma once
// One tile of queries and keys: its scores, its weights, and the gradients of its scores; for kernel files.

#include <algorithm>

#include <xtape/framework/kernels/attention_head.hpp>
#include <xtape/framework/kernels/gemm.hpp>

namespace xtape::kernels {

inline constexpr std::size_t tile = 128;
constexpr std::size_t tiles(std::size_t n) { return (n + tile - 1) / tile; }

/// A range of queries or keys.
struct Range {
  std::size_t first, last;
  std::size_t size() const { return last - first; }
};
inline Range tile_range(std::size_t number, std::size_t n) {
  return {number * tile, std::min(number * tile + tile, n)};
}

/// Numbers of one worker's memory, for float; half of the sums would do for double.
inline constexpr std::size_t workplace_size = 4 * tile * tile + tile;
/// Memory of one worker: scores and their gradients of one tile (tile, tile), a row of factors, and sums in double.
template <class T>
struct Workplace {
  T *scores, *gradients, *factors;
  double* sums;
};
template <class T>
Workplace<T> workplace(T* scratch, std::size_t worker) {
  constexpr std::size_t pairs = tile * tile;
  T* mine = scratch + worker * workplace_size;
  return {mine, mine + pairs, mine + 2 * pairs, reinterpret_cast<double*>(mine + 2 * pairs + tile)};
}

/// The data of one head.
template <class T>
struct HeadInput {
  const T *q, *k, *v;
  HeadInput(const Head<T>& head, const T* all_q, const T* all_k, const T* all_v)
      : q(head.q(all_q)), k(head.k(all_k)), v(head.v(all_v)) {}
};

/// scores (i, j) of a tile, rows `tile` apart, -inf where hidden.
template <class T>
void tile_scores(const Head<T>& head, const HeadInput<T>& in, Range queries, Range keys,
                 typename HeadMask<T>::Seen seen, T* scores) {
  const AttentionShape& s = head.s;
  gemm(Transpose::no, Transpose::yes, queries.size(), keys.size(), s.key_width, static_cast<T>(s.scale),
       in.q + queries.first * s.q_stride, s.q_stride, in.k + keys.first * s.k_stride, s.k_stride, T(0), scores, tile);
  if (seen == HeadMask<T>::Seen::all) return;
  for (std::size_t i = 0; i < queries.size(); ++i)
    head.mask.apply(queries.first + i, keys.first, keys.last, scores + i * tile);
}

/// P of one tile: the scores become weights.
template <class T>
void tile_weights(Range queries, Range keys, const AttentionRow<T>* rows, T* scores) {
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const AttentionRow<T>& row = rows[queries.first + i];
    exponentials(scores + i * tile, keys.size(), row.largest, row.inverse_sum);
  }
}

/// What backward needs of one head beside q, k and v.
template <class T>
struct HeadBackward {
  const AttentionRow<T>* rows;
  const T *deltas, *dy, *dweights;
  T *dq, *dk, *dv;
};

/// For one tile: work.scores = P * F and work.gradients = dS.
template <class T>
void tile_backward(const Head<T>& head, const AttentionDropout& dropout, const HeadInput<T>& in,
                   const HeadBackward<T>& d, Range queries, Range keys, typename HeadMask<T>::Seen seen,
                   const Workplace<T>& work) {
  const AttentionShape& s = head.s;
  tile_scores(head, in, queries, keys, seen, work.scores);
  tile_weights(queries, keys, d.rows, work.scores);
  if (d.dy != nullptr)
    gemm(Transpose::no, Transpose::yes, queries.size(), keys.size(), s.value_width, T(1),
         d.dy + queries.first * head.y_stride(), head.y_stride(), in.v + keys.first * s.v_stride, s.v_stride, T(0),
         work.gradients, tile);
  else
    clear_block(work.gradients, queries.size(), keys.size(), tile);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const std::size_t query = queries.first + i;
    T *p = work.scores + i * tile, *ds = work.gradients + i * tile;
    if (dropout.p > 0) {
      dropout_factors(head, dropout, query, keys.first, keys.last, work.factors);
      multiply_in_place(ds, work.factors, keys.size());
    }
    if (d.dweights != nullptr) add_scaled(ds, T(1), d.dweights + query * s.keys + keys.first, keys.size());
    const Batch<T> mean(d.deltas[query]), zero(T(0));
    sweep<T>(keys.size(), [&](std::size_t j, auto extent) {
      const Batch<T> weight = load(p + j, extent);
      store(ds + j, xsimd::select(weight == zero, zero, weight * (load(ds + j, extent) - mean)), extent);
    });
    if (dropout.p > 0) multiply_in_place(p, work.factors, keys.size());
  }
}

}  // namespace xtape::kernels
