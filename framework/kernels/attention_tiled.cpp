// The form that works tile by tile (Dao et al. 2022, algorithm 1; Dao 2023, sections 3.1 and 3.2): no array of weights.
//
// Forward, for the queries of one tile, over the tiles of keys: S = scale Q K^T + B; with the largest score m and the
// sum l of exponentials so far, a new largest score m' turns both the sum and the output so far by exp(m - m').
// Backward makes P = exp(S - m) / l again, tile by tile, with F the factors of dropout (1 without it):
//   D = rowsum(dY * Y) + rowsum(P * dP') - dlse,   dP' what comes from above for P itself
//   dS = P * ((dY V^T) * F + dP' - D),   dV += (P * F)^T dY,   dQ += scale dS K,   dK += scale dS^T Q,   dB = dS
// D is the row sum of P * dP, since rowsum(P * F * (dY V^T)) = rowsum(dY * Y).
// Tiles of which nothing is seen are skipped. In those of which some is seen, infinity or NaN must not meet the zeros
// of hidden pairs in a matrix product; such tiles take plain loops over the visible pairs.

#include <xtape/framework/kernels/attention.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/attention_tile.hpp>

namespace xtape::kernels {
namespace {

// ---- forward

/// y += P V for one tile, or y = for the first.
template <class T>
void add_values(const Head<T>& head, const HeadInput<T>& in, Range queries, Range keys, bool partly, bool first,
                const T* p, T* y) {
  const AttentionShape& s = head.s;
  const T* v = in.v + keys.first * s.v_stride;
  T* to = y + queries.first * head.y_stride();
  if (!partly || finite_block(v, keys.size(), s.value_width, s.v_stride)) {
    gemm(Transpose::no, Transpose::no, queries.size(), s.value_width, keys.size(), T(1), p, tile, v, s.v_stride,
         first ? T(0) : T(1), to, head.y_stride());
    return;
  }
  if (first) clear_block(to, queries.size(), s.value_width, head.y_stride());
  for (std::size_t i = 0; i < queries.size(); ++i)
    for (std::size_t j = 0; j < keys.size(); ++j)
      if (head.mask.sees(queries.first + i, keys.first + j))
        add_scaled(to + i * head.y_stride(), p[i * tile + j], v + j * s.v_stride, s.value_width);
}

template <class T>
void forward_tile(const Head<T>& head, const AttentionDropout& dropout, const HeadInput<T>& in, Range queries, T* y,
                  AttentionRow<T>* rows, T* log_sum_exp, const Workplace<T>& work) {
  constexpr T hidden = HeadMask<T>::hidden;
  const AttentionShape& s = head.s;
  std::array<T, tile> largest;
  std::array<double, tile> sum{};
  largest.fill(hidden);
  bool first = true;
  for (std::size_t number = 0; number < tiles(s.keys); ++number) {
    const Range keys = tile_range(number, s.keys);
    const auto seen = head.mask.seen(queries.first, queries.last, keys.first, keys.last);
    if (seen == HeadMask<T>::Seen::nothing) continue;
    tile_scores(head, in, queries, keys, seen, work.scores);
    for (std::size_t i = 0; i < queries.size(); ++i) {
      T* scores = work.scores + i * tile;
      const T before = largest[i], here = max_of(scores, keys.size());
      if (here > before) {
        largest[i] = here;
        const T turn = std::exp(before - here);  // 0 for the first keys that are seen
        sum[i] *= static_cast<double>(turn);
        if (!first) scale_row(y + (queries.first + i) * head.y_stride(), s.value_width, turn);
      }
      sum[i] += exponentials(scores, keys.size(), largest[i], T(1));
      if (dropout.p > 0) {
        dropout_factors(head, dropout, queries.first + i, keys.first, keys.last, work.factors);
        multiply_in_place(scores, work.factors, keys.size());
      }
    }
    add_values(head, in, queries, keys, seen == HeadMask<T>::Seen::some, first, work.scores, y);
    first = false;
  }
  if (first) clear_block(y + queries.first * head.y_stride(), queries.size(), s.value_width, head.y_stride());
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const std::size_t query = queries.first + i;
    const bool sees_none = sum[i] == 0 && !head.mask.sees_any(query);
    const T inverse = sees_none ? T(0) : static_cast<T>(1 / sum[i]);
    rows[query] = {largest[i], inverse};
    scale_row(y + query * head.y_stride(), s.value_width, inverse);
    if (log_sum_exp != nullptr) log_sum_exp[query] = sees_none ? hidden : largest[i] + static_cast<T>(std::log(sum[i]));
  }
}

template <class T>
void write_weights(const Head<T>& head, const HeadInput<T>& in, Range queries, const AttentionRow<T>* rows, T* weights,
                   const Workplace<T>& work) {
  for (std::size_t number = 0; number < tiles(head.s.keys); ++number) {
    const Range keys = tile_range(number, head.s.keys);
    const auto seen = head.mask.seen(queries.first, queries.last, keys.first, keys.last);
    if (seen != HeadMask<T>::Seen::nothing) {
      tile_scores(head, in, queries, keys, seen, work.scores);
      tile_weights(queries, keys, rows, work.scores);
    }
    for (std::size_t i = 0; i < queries.size(); ++i) {
      T* to = weights + (queries.first + i) * head.s.keys + keys.first;
      if (seen == HeadMask<T>::Seen::nothing)
        std::fill_n(to, keys.size(), T(0));
      else
        std::copy_n(work.scores + i * tile, keys.size(), to);
    }
  }
}

// ---- backward

template <class T>
T delta(const Head<T>& head, std::size_t query, const T* y, const T* weights, const T* dy, const T* dweights,
        const T* dlse) {
  const std::size_t keys = head.s.keys;
  T total(0);
  if (dy != nullptr) {  // as our own products sum, so that it is exactly dP where one key has all the weight
    const std::size_t width = head.s.value_width, row = query * head.y_stride();
    gemm(Transpose::no, Transpose::yes, 1, 1, width, T(1), dy + row, width, y + row, width, T(0), &total, 1);
  }
  if (dweights != nullptr) {
    const Batch<T> zero(T(0));
    const T *p = weights + query * keys, *dp = dweights + query * keys;
    total += static_cast<T>(sum_of<T>(keys, [&](std::size_t j, auto extent) {
      const Batch<T> weight = load(p + j, extent);
      return xsimd::select(weight == zero, zero, weight * load(dp + j, extent));
    }));
  }
  return dlse == nullptr ? total : total - dlse[query];
}

/// Adds what a tile gives to dq, dk and dv.
template <class T>
void add_gradients(const Head<T>& head, const HeadInput<T>& in, const HeadBackward<T>& d, Range queries, Range keys,
                   bool partly, const Workplace<T>& work) {
  const AttentionShape& s = head.s;
  const T scale = static_cast<T>(s.scale);
  const std::size_t m = queries.size(), n = keys.size();
  const T *q = in.q + queries.first * s.q_stride, *k = in.k + keys.first * s.k_stride,
          *v = in.v + keys.first * s.v_stride;
  const T* dy = d.dy == nullptr ? nullptr : d.dy + queries.first * head.y_stride();
  T* dq = at(d.dq, [&](T* x) { return x + queries.first * s.q_stride; });
  T* dk = at(d.dk, [&](T* x) { return x + keys.first * s.k_stride; });
  T* dv = at(d.dv, [&](T* x) { return x + keys.first * s.v_stride; });
  const bool plain =
      partly && !(finite_block(q, m, s.key_width, s.q_stride) && finite_block(k, n, s.key_width, s.k_stride) &&
                  finite_block(v, n, s.value_width, s.v_stride) &&
                  (dy == nullptr || finite_block(dy, m, s.value_width, head.y_stride())));
  if (!plain) {
    if (dq != nullptr)
      gemm(Transpose::no, Transpose::no, m, s.key_width, n, scale, work.gradients, tile, k, s.k_stride, T(1), dq,
           s.q_stride);
    if (dk != nullptr)
      gemm(Transpose::yes, Transpose::no, n, s.key_width, m, scale, work.gradients, tile, q, s.q_stride, T(1), dk,
           s.k_stride);
    if (dv != nullptr && dy != nullptr)
      gemm(Transpose::yes, Transpose::no, n, s.value_width, m, T(1), work.scores, tile, dy, head.y_stride(), T(1), dv,
           s.v_stride);
    return;
  }
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      if (!head.mask.sees(queries.first + i, keys.first + j)) continue;
      const T ds = scale * work.gradients[i * tile + j];
      if (dq != nullptr) add_scaled(dq + i * s.q_stride, ds, k + j * s.k_stride, s.key_width);
      if (dk != nullptr) add_scaled(dk + j * s.k_stride, ds, q + i * s.q_stride, s.key_width);
      if (dv != nullptr && dy != nullptr)
        add_scaled(dv + j * s.v_stride, work.scores[i * tile + j], dy + i * head.y_stride(), s.value_width);
    }
}

template <class T>
void backward_head(const Head<T>& head, const AttentionDropout& dropout, const HeadInput<T>& in,
                   const HeadBackward<T>& d, const Workplace<T>& work) {
  const AttentionShape& s = head.s;
  for (std::size_t column = 0; column < tiles(s.keys); ++column)
    for (std::size_t row = 0; row < tiles(s.queries); ++row) {
      const Range queries = tile_range(row, s.queries), keys = tile_range(column, s.keys);
      const auto seen = head.mask.seen(queries.first, queries.last, keys.first, keys.last);
      if (seen == HeadMask<T>::Seen::nothing) continue;
      tile_backward(head, dropout, in, d, queries, keys, seen, work);
      add_gradients(head, in, d, queries, keys, seen == HeadMask<T>::Seen::some, work);
    }
}

}  // namespace

std::size_t attention_tiled_scratch() { return static_cast<std::size_t>(threads()) * workplace_size; }

template <class T>
void attention_tiled_forward(const AttentionShape& shape, const AttentionMask<T>& mask, const AttentionDropout& dropout,
                             const T* q, const T* k, const T* v, const AttentionOutput<T>& output,
                             AttentionRow<T>* rows, T* scratch) {
  const std::size_t per_head = tiles(shape.queries);
  parallel_for(shape.batch * shape.heads * per_head, [&](std::size_t piece, std::size_t worker) {
    const std::size_t number = piece / per_head;
    const Head<T> head(shape, mask, number / shape.heads, number % shape.heads);
    const HeadInput<T> in(head, q, k, v);
    const Range queries = tile_range(piece % per_head, shape.queries);
    const Workplace<T> work = workplace(scratch, worker);
    forward_tile(head, dropout, in, queries, head.y(output.y), head.rows(rows),
                 at(output.log_sum_exp, [&](T* x) { return head.rows(x); }), work);
    if (output.weights != nullptr)
      write_weights(head, in, queries, head.rows(rows), head.weights(output.weights), work);
  });
}

template <class T>
void attention_tiled_backward(const AttentionShape& shape, const AttentionMask<T>& mask,
                              const AttentionDropout& dropout, const T* q, const T* k, const T* v,
                              const AttentionOutput<const T>& output, const AttentionRow<T>* rows,
                              const AttentionUpstream<T>& upstream, const AttentionGradients<T>& g, T* deltas,
                              T* scratch) {
  const auto head_backward = [&](const Head<T>& head) {
    return HeadBackward<T>{head.rows(rows),
                           head.rows(deltas),
                           at(upstream.dy, [&](auto* x) { return head.y(x); }),
                           at(upstream.dweights, [&](auto* x) { return head.weights(x); }),
                           at(g.dq, [&](T* x) { return head.q(x); }),
                           at(g.dk, [&](T* x) { return head.k(x); }),
                           at(g.dv, [&](T* x) { return head.v(x); })};
  };
  parallel_for(shape.batch * shape.heads, [&](std::size_t piece, std::size_t) {
    const Head<T> head(shape, mask, piece / shape.heads, piece % shape.heads);
    const HeadBackward<T> d = head_backward(head);
    for (std::size_t i = 0; i < shape.queries; ++i)
      head.rows(deltas)[i] =
          delta<T>(head, i, head.y(output.y), at(output.weights, [&](auto* x) { return head.weights(x); }), d.dy,
                   d.dweights, at(upstream.dlog_sum_exp, [&](auto* x) { return head.rows(x); }));
  });
  // Heads that share keys and values add to the same gradients, one after another.
  parallel_for(shape.batch * shape.kv_heads, [&](std::size_t piece, std::size_t worker) {
    for (std::size_t member = 0; member < shape.group(); ++member) {
      const Head<T> head(shape, mask, piece / shape.kv_heads, piece % shape.kv_heads * shape.group() + member);
      const HeadBackward<T> d = head_backward(head);
      if (d.dq != nullptr && !g.accumulate_q) clear_block(d.dq, shape.queries, shape.key_width, shape.q_stride);
      if (member == 0 && d.dk != nullptr && !g.accumulate_k)
        clear_block(d.dk, shape.keys, shape.key_width, shape.k_stride);
      if (member == 0 && d.dv != nullptr && !g.accumulate_v)
        clear_block(d.dv, shape.keys, shape.value_width, shape.v_stride);
      backward_head(head, dropout, HeadInput<T>(head, q, k, v), d, workplace(scratch, worker));
    }
  });
  if (g.dbias == nullptr) return;
  // A pass of its own, since heads that run beside each other may share the bias: each piece is a tile of the bias and
  // adds up, in order, the tiles of scores that it was added to.
  const auto [batch, heads, bias_queries] = g.bias_extents;
  const bool each_query = bias_queries == shape.queries && bias_queries > 1;
  const std::size_t rows_of_tiles = each_query ? tiles(shape.queries) : 1, columns = tiles(shape.keys);
  parallel_for(batch * heads * rows_of_tiles * columns, [&, batch = batch, heads = heads, bias_queries = bias_queries](
                                                            std::size_t piece, std::size_t worker) {
    const Workplace<T> work = workplace(scratch, worker);
    const Range keys = tile_range(piece % columns, shape.keys);
    const std::size_t row = piece / columns % rows_of_tiles, h0 = piece / columns / rows_of_tiles % heads,
                      b0 = piece / columns / rows_of_tiles / heads;
    const std::size_t first_row = each_query ? row : 0, last_row = each_query ? row + 1 : tiles(shape.queries);
    const Range mine = each_query ? tile_range(row, shape.queries) : Range{0, std::min<std::size_t>(bias_queries, 1)};
    std::fill_n(work.sums, mine.size() * tile, 0.0);
    for (std::size_t b = b0; b < b0 + shape.batch / batch; ++b)
      for (std::size_t h = h0; h < h0 + shape.heads / heads; ++h)
        for (std::size_t r = first_row; r < last_row; ++r) {
          const Head<T> head(shape, mask, b, h);
          const Range queries = tile_range(r, shape.queries);
          const auto seen = head.mask.seen(queries.first, queries.last, keys.first, keys.last);
          if (seen == HeadMask<T>::Seen::nothing) continue;
          tile_backward(head, dropout, HeadInput<T>(head, q, k, v), head_backward(head), queries, keys, seen, work);
          for (std::size_t i = 0; i < queries.size(); ++i)
            for (std::size_t j = 0; j < keys.size(); ++j)
              work.sums[(each_query ? i : 0) * tile + j] += static_cast<double>(work.gradients[i * tile + j]);
        }
    for (std::size_t i = 0; i < mine.size(); ++i) {
      T* to = g.dbias + ((b0 * heads + h0) * bias_queries + mine.first + i) * shape.keys + keys.first;
      for (std::size_t j = 0; j < keys.size(); ++j)
        to[j] = static_cast<T>(work.sums[i * tile + j]) + (g.accumulate_bias ? to[j] : T(0));
    }
  });
}

template void attention_tiled_forward(const AttentionShape&, const AttentionMask<float>&, const AttentionDropout&,
                                      const float*, const float*, const float*, const AttentionOutput<float>&,
                                      AttentionRow<float>*, float*);
template void attention_tiled_backward(const AttentionShape&, const AttentionMask<float>&, const AttentionDropout&,
                                       const float*, const float*, const float*, const AttentionOutput<const float>&,
                                       const AttentionRow<float>*, const AttentionUpstream<float>&,
                                       const AttentionGradients<float>&, float*, float*);
template void attention_tiled_forward(const AttentionShape&, const AttentionMask<double>&, const AttentionDropout&,
                                      const double*, const double*, const double*, const AttentionOutput<double>&,
                                      AttentionRow<double>*, double*);
template void attention_tiled_backward(const AttentionShape&, const AttentionMask<double>&, const AttentionDropout&,
                                       const double*, const double*, const double*,
                                       const AttentionOutput<const double>&, const AttentionRow<double>*,
                                       const AttentionUpstream<double>&, const AttentionGradients<double>&, double*,
                                       double*);

}  // namespace xtape::kernels
