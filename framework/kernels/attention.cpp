// Derivation of the backward, one head, with S = scale Q K^T + B, P = softmax(S) and Y = P V:
//   dV = P^T dY
//   dP = dY V^T (+ what comes from above for P itself)
//   dS = P * (dP - rowsum(P * dP) + dlse)     since dP_j/dS_k = P_j (1[j = k] - P_k) and dlse/dS = P
//   dB = dS,   dQ = scale dS K,   dK = scale dS^T Q
// Where a key is hidden, P = 0 and hence dS = 0. Matrix products still multiply these zeros with what the hidden rows
// hold, which is harmless unless it is infinite or NaN; such heads take plain loops over the visible pairs.

#include <xtape/framework/kernels/attention.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/attention_mask.hpp>
#include <xtape/framework/kernels/gemm.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {
namespace {

/// One head of one batch row.
template <class T>
struct Head {
  const AttentionShape& s;
  std::size_t b, h;
  HeadMask<T> mask;

  Head(const AttentionShape& shape, const AttentionMask<T>& all, std::size_t row, std::size_t head)
      : s(shape), b(row), h(head), mask(all, shape, row, head) {}

  template <class U>
  U* q(U* base) const {
    return base + b * s.queries * s.q_stride + h * s.key_width;
  }
  template <class U>
  U* k(U* base) const {
    return base + b * s.keys * s.k_stride + h / s.group() * s.key_width;
  }
  template <class U>
  U* v(U* base) const {
    return base + b * s.keys * s.v_stride + h / s.group() * s.value_width;
  }
  template <class U>
  U* y(U* base) const {
    return base + b * s.queries * y_stride() + h * s.value_width;
  }
  template <class U>
  U* weights(U* base) const {
    return base + (b * s.heads + h) * s.queries * s.keys;
  }
  template <class U>
  U* rows(U* base) const {
    return base + (b * s.heads + h) * s.queries;
  }
  std::size_t y_stride() const { return s.heads * s.value_width; }
};

template <class T>
bool finite_block(const T* x, std::size_t rows, std::size_t width, std::size_t stride) {
  for (std::size_t i = 0; i < rows; ++i)
    if (!all_finite(x + i * stride, width)) return false;
  return true;
}

template <class T>
T dot(const T* a, const T* b, std::size_t n) {
  return static_cast<T>(
      sum_of<T>(n, [&](std::size_t i, auto extent) { return load(a + i, extent) * load(b + i, extent); }));
}
/// y += factor x
template <class T>
void add_scaled(T* y, T factor, const T* x, std::size_t n) {
  sweep<T>(n, [&](std::size_t i, auto extent) { put<true>(y + i, Batch<T>(factor) * load(x + i, extent), extent); });
}

/// Zeros where query i sees nothing anyway.
template <class T>
void clear_outside(const Head<T>& head, std::size_t i, T* row) {
  std::fill(row, row + head.mask.begin(i), T(0));
  std::fill(row + head.mask.end(i), row + head.s.keys, T(0));
}

/// Scores of query i, in place, to weights. Returns the log-sum-exp.
template <class T>
T softmax_visible(const Head<T>& head, std::size_t i, T* row) {
  constexpr T hidden = HeadMask<T>::hidden;
  head.mask.apply(i, row);
  T* first = row + head.mask.begin(i);
  const std::size_t n = head.mask.end(i) - head.mask.begin(i);
  const T largest = max_of(first, n);
  if (largest == hidden && !head.mask.sees_any(i)) {
    std::fill_n(row, head.s.keys, T(0));
    return hidden;
  }
  const Batch<T> m(largest);
  const double sum = sum_of<T>(n, [&](std::size_t j, auto extent) {
    const Batch<T> score = load(first + j, extent);
    const Batch<T> e = xsimd::select(score == Batch<T>(hidden), Batch<T>(T(0)), xsimd::exp(score - m));
    store(first + j, e, extent);
    return cut(e, extent);
  });
  const Batch<T> factor(static_cast<T>(1 / sum));
  sweep<T>(n, [&](std::size_t j, auto extent) { store(first + j, load(first + j, extent) * factor, extent); });
  clear_outside(head, i, row);
  return largest + static_cast<T>(std::log(sum));
}

template <class T>
void forward_head(const Head<T>& head, const T* q, const T* k, const T* v, T* weights, T* y, T* log_sum_exp) {
  const AttentionShape& s = head.s;
  const T scale = static_cast<T>(s.scale);
  gemm(Transpose::no, Transpose::yes, s.queries, s.keys, s.key_width, scale, q, s.q_stride, k, s.k_stride, T(0),
       weights, s.keys);
  for (std::size_t i = 0; i < s.queries; ++i) {
    const T log_sum = softmax_visible(head, i, weights + i * s.keys);
    if (log_sum_exp != nullptr) log_sum_exp[i] = log_sum;
  }
  if (!head.mask.hides() || finite_block(v, s.keys, s.value_width, s.v_stride)) {
    gemm(Transpose::no, Transpose::no, s.queries, s.value_width, s.keys, T(1), weights, s.keys, v, s.v_stride, T(0), y,
         head.y_stride());
    return;
  }
  for (std::size_t i = 0; i < s.queries; ++i) {
    T* row = y + i * head.y_stride();
    std::fill_n(row, s.value_width, T(0));
    for (std::size_t j = 0; j < s.keys; ++j)
      if (head.mask.sees(i, j)) add_scaled(row, weights[i * s.keys + j], v + j * s.v_stride, s.value_width);
  }
}

/// dS from dP, in place, for query i.
template <class T>
void scores_gradient(const Head<T>& head, std::size_t i, const T* p, T dlse, T* dp) {
  const std::size_t begin = head.mask.begin(i), n = head.mask.end(i) - begin;
  const Batch<T> zero(T(0));
  const auto product = [&](std::size_t j, auto extent) {
    const Batch<T> weight = load(p + begin + j, extent);
    return xsimd::select(weight == zero, zero, weight * load(dp + begin + j, extent));
  };
  const Batch<T> mean(static_cast<T>(sum_of<T>(n, product)) - dlse);
  sweep<T>(n, [&](std::size_t j, auto extent) {
    const Batch<T> weight = load(p + begin + j, extent);
    const Batch<T> gradient = weight * (load(dp + begin + j, extent) - mean);
    store(dp + begin + j, xsimd::select(weight == zero, zero, gradient), extent);
  });
  clear_outside(head, i, dp);
}

/// Where the data of one head lie, and its upstream gradients.
template <class T>
struct HeadData {
  const T *q, *k, *v, *weights, *dy, *dweights, *dlse;
  T *dq, *dk, *dv, *ds;
};

template <class T>
void backward_head(const Head<T>& head, const HeadData<T>& d, const AttentionGradients<T>& g) {
  const AttentionShape& s = head.s;
  const T scale = static_cast<T>(s.scale);
  const auto beta = [](bool accumulate) { return accumulate ? T(1) : T(0); };
  if (d.dy != nullptr)
    gemm(Transpose::no, Transpose::yes, s.queries, s.keys, s.value_width, T(1), d.dy, head.y_stride(), d.v, s.v_stride,
         T(0), d.ds, s.keys);
  else
    std::fill_n(d.ds, s.queries * s.keys, T(0));
  for (std::size_t i = 0; i < s.queries; ++i) {
    if (d.dweights != nullptr) add_scaled(d.ds + i * s.keys, T(1), d.dweights + i * s.keys, s.keys);
    scores_gradient(head, i, d.weights + i * s.keys, d.dlse != nullptr ? d.dlse[i] : T(0), d.ds + i * s.keys);
  }
  if (d.dq != nullptr)
    gemm(Transpose::no, Transpose::no, s.queries, s.key_width, s.keys, scale, d.ds, s.keys, d.k, s.k_stride,
         beta(g.accumulate_q), d.dq, s.q_stride);
  if (d.dk != nullptr)
    gemm(Transpose::yes, Transpose::no, s.keys, s.key_width, s.queries, scale, d.ds, s.keys, d.q, s.q_stride,
         beta(g.accumulate_k), d.dk, s.k_stride);
  if (d.dv != nullptr && d.dy != nullptr)
    gemm(Transpose::yes, Transpose::no, s.keys, s.value_width, s.queries, T(1), d.weights, s.keys, d.dy,
         head.y_stride(), beta(g.accumulate_v), d.dv, s.v_stride);
}

/// The same over visible pairs alone, for heads that hold something infinite or NaN.
template <class T>
void backward_head_of_visible(const Head<T>& head, const HeadData<T>& d) {
  const AttentionShape& s = head.s;
  const T scale = static_cast<T>(s.scale);
  for (std::size_t i = 0; i < s.queries; ++i) {
    T* ds = d.ds + i * s.keys;
    const T* dy = d.dy == nullptr ? nullptr : d.dy + i * head.y_stride();
    for (std::size_t j = 0; j < s.keys; ++j) {
      ds[j] = T(0);
      if (!head.mask.sees(i, j)) continue;
      if (dy != nullptr) ds[j] = dot(dy, d.v + j * s.v_stride, s.value_width);
      if (d.dweights != nullptr) ds[j] += d.dweights[i * s.keys + j];
    }
    scores_gradient(head, i, d.weights + i * s.keys, d.dlse != nullptr ? d.dlse[i] : T(0), ds);
    for (std::size_t j = 0; j < s.keys; ++j) {
      if (!head.mask.sees(i, j)) continue;
      if (d.dq != nullptr) add_scaled(d.dq + i * s.q_stride, scale * ds[j], d.k + j * s.k_stride, s.key_width);
      if (d.dk != nullptr) add_scaled(d.dk + j * s.k_stride, scale * ds[j], d.q + i * s.q_stride, s.key_width);
      if (d.dv != nullptr && dy != nullptr)
        add_scaled(d.dv + j * s.v_stride, d.weights[i * s.keys + j], dy, s.value_width);
    }
  }
}

template <class T>
void clear_block(T* x, std::size_t rows, std::size_t width, std::size_t stride) {
  for (std::size_t i = 0; i < rows; ++i) std::fill_n(x + i * stride, width, T(0));
}

/// Backward of one head; `g` says which gradients are added to.
template <class T>
void backward_of(const Head<T>& head, const HeadData<T>& d, const AttentionGradients<T>& g) {
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
    backward_head_of_visible(head, d);
  else
    backward_head(head, d, g);
}

}  // namespace

template <class T>
void attention_forward(const AttentionShape& shape, const AttentionMask<T>& mask, const T* q, const T* k, const T* v,
                       T* weights, T* y, T* log_sum_exp) {
  parallel_for(shape.batch * shape.heads, [&](std::size_t piece, std::size_t) {
    const Head<T> head(shape, mask, piece / shape.heads, piece % shape.heads);
    forward_head(head, head.q(q), head.k(k), head.v(v), head.weights(weights), head.y(y),
                 log_sum_exp != nullptr ? head.rows(log_sum_exp) : nullptr);
  });
}

template <class T>
void attention_backward(const AttentionShape& shape, const AttentionMask<T>& mask, const T* q, const T* k, const T* v,
                        const T* weights, const AttentionUpstream<T>& upstream, const AttentionGradients<T>& gradients,
                        T* dscores, T* scratch) {
  const auto at = [](T* base, auto place) { return base == nullptr ? nullptr : place(base); };
  const auto read_at = [](const T* base, auto place) { return base == nullptr ? nullptr : place(base); };
  // The query heads that read one key and value head come one after another: they add into the same dk and dv.
  parallel_for(shape.batch * shape.kv_heads, [&](std::size_t piece, std::size_t worker) {
    AttentionGradients<T> g = gradients;
    for (std::size_t member = 0; member < shape.group(); ++member) {
      const Head<T> head(shape, mask, piece / shape.kv_heads, piece % shape.kv_heads * shape.group() + member);
      const HeadData<T> d{head.q(q),
                          head.k(k),
                          head.v(v),
                          head.weights(weights),
                          read_at(upstream.dy, [&](auto* p) { return head.y(p); }),
                          read_at(upstream.dweights, [&](auto* p) { return head.weights(p); }),
                          read_at(upstream.dlog_sum_exp, [&](auto* p) { return head.rows(p); }),
                          at(gradients.dq, [&](auto* p) { return head.q(p); }),
                          at(gradients.dk, [&](auto* p) { return head.k(p); }),
                          at(gradients.dv, [&](auto* p) { return head.v(p); }),
                          dscores != nullptr ? head.weights(dscores) : scratch + worker * shape.queries * shape.keys};
      backward_of(head, d, g);
      g.accumulate_k = g.accumulate_v = true;
    }
  });
}

template <class T>
void attention_bias_backward(const AttentionShape& shape, const std::size_t (&extents)[3], const T* dscores, T* dbias,
                             bool accumulate) {
  const auto [batch, heads, queries] = extents;
  const std::size_t keys = shape.keys;
  if (batch * heads * queries == 0) return;
  // How many places of each axis share one of the bias, and how far they lie apart in dscores.
  const std::size_t rows = shape.batch / batch, columns = shape.heads / heads, times = shape.queries / queries;
  parallel_for(batch * heads * queries,
               [&, batch = batch, heads = heads, queries = queries](std::size_t piece, std::size_t) {
                 const std::size_t i0 = piece % queries, h0 = piece / queries % heads, b0 = piece / queries / heads;
                 T* to = dbias + piece * keys;
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
                     to[begin + j] = static_cast<T>(sums[j]) + (accumulate ? to[begin + j] : T(0));
                 }
               });
}

template void attention_forward(const AttentionShape&, const AttentionMask<float>&, const float*, const float*,
                                const float*, float*, float*, float*);
template void attention_forward(const AttentionShape&, const AttentionMask<double>&, const double*, const double*,
                                const double*, double*, double*, double*);
template void attention_backward(const AttentionShape&, const AttentionMask<float>&, const float*, const float*,
                                 const float*, const float*, const AttentionUpstream<float>&,
                                 const AttentionGradients<float>&, float*, float*);
template void attention_backward(const AttentionShape&, const AttentionMask<double>&, const double*, const double*,
                                 const double*, const double*, const AttentionUpstream<double>&,
                                 const AttentionGradients<double>&, double*, double*);
template void attention_bias_backward(const AttentionShape&, const std::size_t (&)[3], const float*, float*, bool);
template void attention_bias_backward(const AttentionShape&, const std::size_t (&)[3], const double*, double*, bool);

}  // namespace xtape::kernels
