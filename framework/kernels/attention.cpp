// Derivation of the backward, one head, with S = scale Q K^T, P = softmax(S) and Y = P V:
//   dV = P^T dY
//   dP = dY V^T (+ what comes from above for P itself)
//   dS = P * (dP - rowsum(P * dP) + dlse)     since dP_j/dS_k = P_j (1[j = k] - P_k) and dlse/dS = P
//   dQ = scale dS K,   dK = scale dS^T Q
// Where a key is hidden, P = 0 and hence dS = 0. Matrix products still multiply these zeros with what the hidden rows
// hold, which is harmless unless it is infinite or NaN; such heads take plain loops over the visible pairs.

#include <xtape/framework/kernels/attention.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/gemm.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {
namespace {

/// One head of one batch row.
template <class T>
struct Head {
  const AttentionShape& s;
  std::size_t b, h;

  template <class U>
  U* q(U* base) const {
    return base + b * s.queries * s.q_stride + h * s.key_width;
  }
  template <class U>
  U* k(U* base) const {
    return base + b * s.keys * s.k_stride + h * s.key_width;
  }
  template <class U>
  U* v(U* base) const {
    return base + b * s.keys * s.v_stride + h * s.value_width;
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

  /// Keys beyond this prefix are hidden from query i.
  std::size_t prefix(std::size_t i) const {
    if (s.allow_queries != nullptr && s.allow_queries[b * s.queries + i] == 0) return 0;
    if (!s.causal) return s.keys;
    return std::min(s.keys, i + 1 + s.keys > s.queries ? i + 1 + s.keys - s.queries : 0);
  }
  const std::uint8_t* allowed() const { return s.allow_keys == nullptr ? nullptr : s.allow_keys + b * s.keys; }
  bool visible(std::size_t i, std::size_t j) const {
    return j < prefix(i) && (allowed() == nullptr || allowed()[j] != 0);
  }
  bool hides() const { return s.causal || s.allow_keys != nullptr || s.allow_queries != nullptr; }
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

/// Scores of query i, in place, to weights. Returns the log-sum-exp.
template <class T>
T softmax_visible(const Head<T>& head, std::size_t i, T* row) {
  constexpr T hidden = -std::numeric_limits<T>::infinity();
  const std::size_t n = head.prefix(i);
  std::size_t visible = n;
  if (const std::uint8_t* allowed = head.allowed()) {
    for (std::size_t j = 0; j < n; ++j)
      if (allowed[j] == 0) row[j] = hidden, --visible;
  }
  if (visible == 0) {
    std::fill_n(row, head.s.keys, T(0));
    return hidden;
  }
  const T largest = max_of(row, n);
  const Batch<T> m(largest);
  const double sum = sum_of<T>(n, [&](std::size_t j, auto extent) {
    const Batch<T> score = load(row + j, extent);
    const Batch<T> e = xsimd::select(score == Batch<T>(hidden), Batch<T>(T(0)), xsimd::exp(score - m));
    store(row + j, e, extent);
    return cut(e, extent);
  });
  const Batch<T> factor(static_cast<T>(1 / sum));
  sweep<T>(n, [&](std::size_t j, auto extent) { store(row + j, load(row + j, extent) * factor, extent); });
  std::fill(row + n, row + head.s.keys, T(0));
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
  if (!head.hides() || finite_block(v, s.keys, s.value_width, s.v_stride)) {
    gemm(Transpose::no, Transpose::no, s.queries, s.value_width, s.keys, T(1), weights, s.keys, v, s.v_stride, T(0), y,
         head.y_stride());
    return;
  }
  for (std::size_t i = 0; i < s.queries; ++i) {
    T* row = y + i * head.y_stride();
    std::fill_n(row, s.value_width, T(0));
    for (std::size_t j = 0; j < s.keys; ++j)
      if (head.visible(i, j)) add_scaled(row, weights[i * s.keys + j], v + j * s.v_stride, s.value_width);
  }
}

/// dS from dP, in place, for query i.
template <class T>
void scores_gradient(const Head<T>& head, std::size_t i, const T* p, T dlse, T* dp) {
  const std::size_t n = head.prefix(i);
  const Batch<T> zero(T(0));
  const auto product = [&](std::size_t j, auto extent) {
    const Batch<T> weight = load(p + j, extent);
    return xsimd::select(weight == zero, zero, weight * load(dp + j, extent));
  };
  const Batch<T> mean(static_cast<T>(sum_of<T>(n, product)) - dlse);
  sweep<T>(n, [&](std::size_t j, auto extent) {
    const Batch<T> weight = load(p + j, extent);
    store(dp + j, xsimd::select(weight == zero, zero, weight * (load(dp + j, extent) - mean)), extent);
  });
  std::fill(dp + n, dp + head.s.keys, T(0));
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
      if (!head.visible(i, j)) continue;
      if (dy != nullptr) ds[j] = dot(dy, d.v + j * s.v_stride, s.value_width);
      if (d.dweights != nullptr) ds[j] += d.dweights[i * s.keys + j];
    }
    scores_gradient(head, i, d.weights + i * s.keys, d.dlse != nullptr ? d.dlse[i] : T(0), ds);
    for (std::size_t j = 0; j < s.keys; ++j) {
      if (!head.visible(i, j)) continue;
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

}  // namespace

template <class T>
void attention_forward(const AttentionShape& shape, const T* q, const T* k, const T* v, T* weights, T* y,
                       T* log_sum_exp) {
  parallel_for(shape.batch * shape.heads, [&](std::size_t piece, std::size_t) {
    const Head<T> head{shape, piece / shape.heads, piece % shape.heads};
    forward_head(head, head.q(q), head.k(k), head.v(v), head.weights(weights), head.y(y),
                 log_sum_exp != nullptr ? head.rows(log_sum_exp) : nullptr);
  });
}

template <class T>
void attention_backward(const AttentionShape& shape, const T* q, const T* k, const T* v, const T* weights,
                        const AttentionUpstream<T>& upstream, const AttentionGradients<T>& gradients, T* scratch) {
  const auto at = [](T* base, auto place) { return base == nullptr ? nullptr : place(base); };
  const auto read_at = [](const T* base, auto place) { return base == nullptr ? nullptr : place(base); };
  parallel_for(shape.batch * shape.heads, [&](std::size_t piece, std::size_t worker) {
    const Head<T> head{shape, piece / shape.heads, piece % shape.heads};
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
                        scratch + worker * shape.queries * shape.keys};
    const bool plain =
        head.hides() && !(finite_block(d.q, shape.queries, shape.key_width, shape.q_stride) &&
                          finite_block(d.k, shape.keys, shape.key_width, shape.k_stride) &&
                          finite_block(d.v, shape.keys, shape.value_width, shape.v_stride) &&
                          (d.dy == nullptr || finite_block(d.dy, shape.queries, shape.value_width, head.y_stride())));
    const bool nothing_for_v = d.dv != nullptr && d.dy == nullptr;
    if (d.dq != nullptr && plain && !gradients.accumulate_q)
      clear_block(d.dq, shape.queries, shape.key_width, shape.q_stride);
    if (d.dk != nullptr && plain && !gradients.accumulate_k)
      clear_block(d.dk, shape.keys, shape.key_width, shape.k_stride);
    if (d.dv != nullptr && (plain || nothing_for_v) && !gradients.accumulate_v)
      clear_block(d.dv, shape.keys, shape.value_width, shape.v_stride);
    if (plain)
      backward_head_of_visible(head, d);
    else
      backward_head(head, d, gradients);
  });
}

template void attention_forward(const AttentionShape&, const float*, const float*, const float*, float*, float*,
                                float*);
template void attention_forward(const AttentionShape&, const double*, const double*, const double*, double*, double*,
                                double*);
template void attention_backward(const AttentionShape&, const float*, const float*, const float*, const float*,
                                 const AttentionUpstream<float>&, const AttentionGradients<float>&, float*);
template void attention_backward(const AttentionShape&, const double*, const double*, const double*, const double*,
                                 const AttentionUpstream<double>&, const AttentionGradients<double>&, double*);

}  // namespace xtape::kernels
