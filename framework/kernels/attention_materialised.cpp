// The form that keeps the weights: for short sequences, where they are small.
//
// Derivation of the backward, one head, with S = scale Q K^T + B, P = softmax(S), F the factors of dropout (1 without
// it) and Y = (P * F) V:
//   dV = (P * F)^T dY
//   dP = (dY V^T) * F (+ what comes from above for P itself)
//   dS = P * (dP - rowsum(P * dP) + dlse)     since dP_j/dS_k = P_j (1[j = k] - P_k) and dlse/dS = P
//   dB = dS,   dQ = scale dS K,   dK = scale dS^T Q
// Where a key is hidden, P = 0 and hence dS = 0. Matrix products still multiply these zeros with what the hidden rows
// hold, which is harmless unless it is infinite or NaN; such heads take plain loops over the visible pairs.

#include <xtape/framework/kernels/attention.hpp>

#include <algorithm>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/attention_row.hpp>
#include <xtape/framework/kernels/gemm.hpp>

namespace xtape::kernels {
namespace {

/// Memory of one worker for the time of a call.
template <class T>
struct Workplace {
  T *scores, *dropped, *factors;  // two of (queries, keys) and one of (keys)
};

/// The weights after dropout: the weights themselves if there is none.
template <class T>
const T* dropped_weights(const Head<T>& head, const AttentionDropout& dropout, const T* weights,
                         const Workplace<T>& work) {
  if (dropout.p == 0) return weights;
  const std::size_t keys = head.s.keys;
  for (std::size_t i = 0; i < head.s.queries; ++i) {
    dropout_factors(head, dropout, i, 0, keys, work.factors);
    std::copy_n(weights + i * keys, keys, work.dropped + i * keys);
    multiply_in_place(work.dropped + i * keys, work.factors, keys);
  }
  return work.dropped;
}

template <class T>
void forward_head(const Head<T>& head, const AttentionDropout& dropout, const T* q, const T* k, const T* v, T* weights,
                  T* y, T* log_sum_exp, const Workplace<T>& work) {
  const AttentionShape& s = head.s;
  for_each_strip(head, [&](const Strip& strip) {
    gemm(Transpose::no, Transpose::yes, strip.queries, strip.keys, s.key_width, T(1),
         q + strip.first_query * s.q_stride, s.q_stride, k + strip.first_key * s.k_stride, s.k_stride, T(0),
         weights + strip.first_query * s.keys + strip.first_key, s.keys);
    for (std::size_t i = strip.first_query; i < strip.first_query + strip.queries; ++i)
      softmax_visible(head, i, weights + i * s.keys, log_sum_exp == nullptr ? nullptr : log_sum_exp + i);
  });
  const T* p = dropped_weights(head, dropout, weights, work);
  const auto hides = [&] { return head.mask.seen(0, s.queries, 0, s.keys) != HeadMask<T>::Seen::all; };
  if (!head.mask.hides() || finite_block(v, s.keys, s.value_width, s.v_stride) || !hides()) {
    for_each_strip(head, [&](const Strip& strip) {
      gemm(Transpose::no, Transpose::no, strip.queries, s.value_width, strip.keys, T(1),
           p + strip.first_query * s.keys + strip.first_key, s.keys, v + strip.first_key * s.v_stride, s.v_stride, T(0),
           y + strip.first_query * head.y_stride(), head.y_stride());
    });
    return;
  }
  for (std::size_t i = 0; i < s.queries; ++i) {
    T* row = y + i * head.y_stride();
    std::fill_n(row, s.value_width, T(0));
    for (std::size_t j = 0; j < s.keys; ++j)
      if (head.mask.sees(i, j)) add_scaled(row, p[i * s.keys + j], v + j * s.v_stride, s.value_width);
  }
}

/// Where the data of one head lie, and its upstream gradients.
template <class T>
struct HeadData {
  const T *q, *k, *v, *weights, *dropped, *dy, *dweights, *dlse;
  T *dq, *dk, *dv, *ds;
};

/// dP of the keys first <= j < first + n from dY V^T, in place: through dropout, and with what comes from above for the
/// weights.
template <class T>
void weights_gradient(const Head<T>& head, const AttentionDropout& dropout, std::size_t i, std::size_t first,
                      std::size_t n, const HeadData<T>& d, T* factors) {
  T* dp = d.ds + i * head.s.keys + first;
  if (dropout.p > 0) {
    dropout_factors(head, dropout, i, first, first + n, factors);
    multiply_in_place(dp, factors, n);
  }
  if (d.dweights != nullptr) add_scaled(dp, T(1), d.dweights + i * head.s.keys + first, n);
}

template <class T>
void backward_head(const Head<T>& head, const AttentionDropout& dropout, const HeadData<T>& d,
                   const AttentionGradients<T>& g, T* factors) {
  const AttentionShape& s = head.s;
  // The gradient of a bias is dS as it is; without one dS can take up the scale at once.
  const T scale = static_cast<T>(s.scale), early = g.dbias == nullptr ? scale : T(1),
          late = g.dbias == nullptr ? T(1) : scale;
  // Several strips add to the same rows of dk and dv, so these are cleared first; all three before any product, since
  // q, k and v may be one array. Of a single strip the keys beside it are cleared. Without a query there is none.
  const bool adds = s.queries == 0 || strip_height(head) < s.queries;
  if (adds && d.dq != nullptr && !g.accumulate_q) clear_block(d.dq, s.queries, s.key_width, s.q_stride);
  if (adds && d.dk != nullptr && !g.accumulate_k) clear_block(d.dk, s.keys, s.key_width, s.k_stride);
  if (adds && d.dv != nullptr && !g.accumulate_v) clear_block(d.dv, s.keys, s.value_width, s.v_stride);
  const auto beta = [&](bool accumulate) { return adds || accumulate ? T(1) : T(0); };
  const auto clear_beside = [&](const Strip& strip, T* x, std::size_t width, std::size_t stride) {
    const std::size_t last = strip.first_key + strip.keys;
    clear_block(x, strip.first_key, width, stride);
    clear_block(x + last * stride, s.keys - last, width, stride);
  };
  for_each_strip(head, [&](const Strip& strip) {
    const auto [first_query, queries, first_key, keys] = strip;
    if (!adds && d.dk != nullptr && !g.accumulate_k) clear_beside(strip, d.dk, s.key_width, s.k_stride);
    if (!adds && d.dv != nullptr && !g.accumulate_v) clear_beside(strip, d.dv, s.value_width, s.v_stride);
    const std::size_t pair = first_query * s.keys + first_key;
    const T* dy = d.dy == nullptr ? nullptr : d.dy + first_query * head.y_stride();
    if (dy != nullptr)
      gemm(Transpose::no, Transpose::yes, queries, keys, s.value_width, T(1), dy, head.y_stride(),
           d.v + first_key * s.v_stride, s.v_stride, T(0), d.ds + pair, s.keys);
    else
      clear_block(d.ds + pair, queries, keys, s.keys);
    for (std::size_t i = first_query; i < first_query + queries; ++i) {
      weights_gradient(head, dropout, i, first_key, keys, d, factors);
      scores_gradient(head, i, d.weights + i * s.keys, d.dlse != nullptr ? d.dlse[i] : T(0), early, d.ds + i * s.keys);
    }
    if (d.dq != nullptr)
      gemm(Transpose::no, Transpose::no, queries, s.key_width, keys, late, d.ds + pair, s.keys,
           d.k + first_key * s.k_stride, s.k_stride, beta(g.accumulate_q), d.dq + first_query * s.q_stride, s.q_stride);
    if (d.dk != nullptr)
      gemm(Transpose::yes, Transpose::no, keys, s.key_width, queries, late, d.ds + pair, s.keys,
           d.q + first_query * s.q_stride, s.q_stride, beta(g.accumulate_k), d.dk + first_key * s.k_stride, s.k_stride);
    if (d.dv != nullptr && dy != nullptr)
      gemm(Transpose::yes, Transpose::no, keys, s.value_width, queries, T(1), d.dropped + pair, s.keys, dy,
           head.y_stride(), beta(g.accumulate_v), d.dv + first_key * s.v_stride, s.v_stride);
  });
}

/// The same over visible pairs alone, for heads that hold something infinite or NaN.
template <class T>
void backward_head_of_visible(const Head<T>& head, const AttentionDropout& dropout, const HeadData<T>& d, T* factors) {
  const AttentionShape& s = head.s;
  const T scale = static_cast<T>(s.scale);
  for (std::size_t i = 0; i < s.queries; ++i) {
    T* ds = d.ds + i * s.keys;
    const T* dy = d.dy == nullptr ? nullptr : d.dy + i * head.y_stride();
    for (std::size_t j = 0; j < s.keys; ++j) {
      ds[j] = T(0);
      if (dy != nullptr && head.mask.sees(i, j)) ds[j] = dot(dy, d.v + j * s.v_stride, s.value_width);
    }
    weights_gradient(head, dropout, i, 0, s.keys, d, factors);
    scores_gradient(head, i, d.weights + i * s.keys, d.dlse != nullptr ? d.dlse[i] : T(0), T(1), ds);
    for (std::size_t j = 0; j < s.keys; ++j) {
      if (!head.mask.sees(i, j)) continue;
      if (d.dq != nullptr) add_scaled(d.dq + i * s.q_stride, scale * ds[j], d.k + j * s.k_stride, s.key_width);
      if (d.dk != nullptr) add_scaled(d.dk + j * s.k_stride, scale * ds[j], d.q + i * s.q_stride, s.key_width);
      if (d.dv != nullptr && dy != nullptr)
        add_scaled(d.dv + j * s.v_stride, d.dropped[i * s.keys + j], dy, s.value_width);
    }
  }
}

/// Backward of one head; `g` says which gradients are added to.
template <class T>
void backward_of(const Head<T>& head, const AttentionDropout& dropout, const HeadData<T>& d,
                 const AttentionGradients<T>& g, T* factors) {
  const AttentionShape& s = head.s;
  const bool plain =
      head.mask.hides() &&
      !(finite_block(d.q, s.queries, s.key_width, s.q_stride) && finite_block(d.k, s.keys, s.key_width, s.k_stride) &&
        finite_block(d.v, s.keys, s.value_width, s.v_stride) &&
        (d.dy == nullptr || finite_block(d.dy, s.queries, s.value_width, head.y_stride())));
  const bool nothing_for_v = d.dv != nullptr && d.dy == nullptr;
  if (d.dq != nullptr && plain && !g.accumulate_q) clear_block(d.dq, s.queries, s.key_width, s.q_stride);
  if (d.dk != nullptr && plain && !g.accumulate_k) clear_block(d.dk, s.keys, s.key_width, s.k_stride);
  if (d.dv != nullptr && (plain || nothing_for_v) && !g.accumulate_v)
    clear_block(d.dv, s.keys, s.value_width, s.v_stride);
  if (plain)
    backward_head_of_visible(head, dropout, d, factors);
  else
    backward_head(head, dropout, d, g, factors);
}

/// The scratch of a call: one array of scores for each worker or for each head, then what dropout needs.
template <class T>
class Scratch {
 public:
  Scratch(T* data, const AttentionShape& s, std::size_t scores)
      : data_(data), pairs_(s.queries * s.keys), keys_(s.keys), scores_(scores) {}
  Workplace<T> of(std::size_t worker, std::size_t scores) const {
    T* dropped = data_ + scores_ * pairs_ + worker * (pairs_ + keys_);
    return {data_ + scores * pairs_, dropped, dropped + pairs_};
  }

 private:
  T* data_;
  std::size_t pairs_, keys_, scores_;
};
std::size_t scratch_size(const AttentionShape& s, const AttentionDropout& dropout, std::size_t scores) {
  const std::size_t pairs = s.queries * s.keys, workers = static_cast<std::size_t>(threads());
  return scores * pairs + (dropout.p > 0 ? workers * (pairs + s.keys) : 0);
}
template <class T>
std::size_t scores_of_backward(const AttentionShape& s, const AttentionGradients<T>& g) {
  return g.dbias != nullptr ? s.batch * s.heads : static_cast<std::size_t>(threads());
}

/// dbias from the gradients of the scores, (batch, heads, queries, keys).
template <class T>
void bias_backward(const AttentionShape& shape, const AttentionGradients<T>& g, const T* dscores) {
  const auto [batch, heads, queries] = g.bias_extents;
  const std::size_t keys = shape.keys;
  if (batch * heads * queries == 0) return;
  // How many places of each axis share one of the bias.
  const std::size_t rows = shape.batch / batch, columns = shape.heads / heads, times = shape.queries / queries;
  parallel_for(batch * heads * queries,
               [&, batch = batch, heads = heads, queries = queries](std::size_t piece, std::size_t) {
                 const std::size_t i0 = piece % queries, h0 = piece / queries % heads, b0 = piece / queries / heads;
                 T* to = g.dbias + piece * keys;
                 constexpr std::size_t block = 256;
                 for (std::size_t begin = 0; begin < keys; begin += block) {
                   const std::size_t n = std::min(block, keys - begin);
                   double sums[block] = {};
                   for (std::size_t b = b0; b < b0 + rows; ++b)
                     for (std::size_t h = h0; h < h0 + columns; ++h)
                       for (std::size_t i = i0; i < i0 + times; ++i) {
                         const T* from = dscores + ((b * shape.heads + h) * shape.queries + i) * keys + begin;
                         for (std::size_t j = 0; j < n; ++j) sums[j] += static_cast<double>(from[j]);
                       }
                   for (std::size_t j = 0; j < n; ++j)
                     to[begin + j] = static_cast<T>(sums[j]) + (g.accumulate_bias ? to[begin + j] : T(0));
                 }
               });
}

}  // namespace

std::size_t attention_materialised_forward_scratch(const AttentionShape& shape, const AttentionDropout& dropout) {
  return scratch_size(shape, dropout, 0);
}

template <class T>
void attention_materialised_forward(const AttentionShape& shape, const AttentionMask<T>& mask,
                                    const AttentionDropout& dropout, const T* q, const T* k, const T* v,
                                    const AttentionOutput<T>& output, T* scratch) {
  const Scratch<T> memory(scratch, shape, 0);
  parallel_for(shape.batch * shape.heads, [&](std::size_t piece, std::size_t worker) {
    const Head<T> head(shape, mask, piece / shape.heads, piece % shape.heads);
    forward_head(head, dropout, head.q(q), head.k(k), head.v(v), head.weights(output.weights), head.y(output.y),
                 output.log_sum_exp != nullptr ? head.rows(output.log_sum_exp) : nullptr, memory.of(worker, 0));
  });
}

template <class T>
std::size_t attention_materialised_backward_scratch(const AttentionShape& shape, const AttentionDropout& dropout,
                                                    const AttentionGradients<T>& gradients) {
  return scratch_size(shape, dropout, scores_of_backward(shape, gradients));
}

template <class T>
void attention_materialised_backward(const AttentionShape& shape, const AttentionMask<T>& mask,
                                     const AttentionDropout& dropout, const T* q, const T* k, const T* v,
                                     const T* weights, const AttentionUpstream<T>& upstream,
                                     const AttentionGradients<T>& gradients, T* scratch) {
  const bool of_bias = gradients.dbias != nullptr;
  const Scratch<T> memory(scratch, shape, scores_of_backward(shape, gradients));
  // Heads that share keys and values add to the same gradients, one after another.
  parallel_for(shape.batch * shape.kv_heads, [&](std::size_t piece, std::size_t worker) {
    AttentionGradients<T> g = gradients;
    for (std::size_t member = 0; member < shape.group(); ++member) {
      const Head<T> head(shape, mask, piece / shape.kv_heads, piece % shape.kv_heads * shape.group() + member);
      const Workplace<T> work = memory.of(worker, of_bias ? head.b * shape.heads + head.h : worker);
      const T* p = head.weights(weights);
      const HeadData<T> d{head.q(q),
                          head.k(k),
                          head.v(v),
                          p,
                          dropped_weights(head, dropout, p, work),
                          at(upstream.dy, [&](auto* x) { return head.y(x); }),
                          at(upstream.dweights, [&](auto* x) { return head.weights(x); }),
                          at(upstream.dlog_sum_exp, [&](auto* x) { return head.rows(x); }),
                          at(gradients.dq, [&](auto* x) { return head.q(x); }),
                          at(gradients.dk, [&](auto* x) { return head.k(x); }),
                          at(gradients.dv, [&](auto* x) { return head.v(x); }),
                          work.scores};
      backward_of(head, dropout, d, g, work.factors);
      g.accumulate_k = g.accumulate_v = true;
    }
  });
  if (of_bias) bias_backward(shape, gradients, scratch);
}

template void attention_materialised_forward(const AttentionShape&, const AttentionMask<float>&,
                                             const AttentionDropout&, const float*, const float*, const float*,
                                             const AttentionOutput<float>&, float*);
template std::size_t attention_materialised_backward_scratch(const AttentionShape&, const AttentionDropout&,
                                                             const AttentionGradients<float>&);
template void attention_materialised_backward(const AttentionShape&, const AttentionMask<float>&,
                                              const AttentionDropout&, const float*, const float*, const float*,
                                              const float*, const AttentionUpstream<float>&,
                                              const AttentionGradients<float>&, float*);
template void attention_materialised_forward(const AttentionShape&, const AttentionMask<double>&,
                                             const AttentionDropout&, const double*, const double*, const double*,
                                             const AttentionOutput<double>&, double*);
template std::size_t attention_materialised_backward_scratch(const AttentionShape&, const AttentionDropout&,
                                                             const AttentionGradients<double>&);
template void attention_materialised_backward(const AttentionShape&, const AttentionMask<double>&,
                                              const AttentionDropout&, const double*, const double*, const double*,
                                              const double*, const AttentionUpstream<double>&,
                                              const AttentionGradients<double>&, double*);

}  // namespace xtape::kernels
