#pragma once
// Scaled dot-product attention of many heads (Vaswani et al. 2017, section 3.2), the weights kept for backward.

#include <cstddef>
#include <cstdint>

namespace xtape::kernels {

/// q, k, v and y stay as projections make them: (batch, time, heads * width), head h at column h * width, rows of q, k
/// and v at any distance, so that all three may be columns of one projection's output.
struct AttentionShape {
  std::size_t batch, heads, queries, keys;
  std::size_t key_width, value_width;        // of one head
  std::size_t q_stride, k_stride, v_stride;  // from one time to the next
  double scale;
  bool causal;                        // query i sees the keys j <= i + keys - queries
  const std::uint8_t* allow_keys;     // (batch, keys), or null: all
  const std::uint8_t* allow_queries;  // (batch, queries), or null: all
};

/// weights (batch, heads, queries, keys) = softmax(scale q k^T) over the visible keys, 0 elsewhere, and 0 for a query
/// that sees no key; y (batch, queries, heads * value_width) = weights v; log_sum_exp (batch, heads, queries) unless
/// null.
///
/// Rows of k and v that a query may not see do not touch its output, whatever they hold.
template <class T>
void attention_forward(const AttentionShape& shape, const T* q, const T* k, const T* v, T* weights, T* y,
                       T* log_sum_exp);

/// Gradients from above; those that are null count as zero.
template <class T>
struct AttentionUpstream {
  const T *dy, *dweights, *dlog_sum_exp;
};
/// Gradients to be set or added to; a null one is not wanted. Laid out like q, k and v.
template <class T>
struct AttentionGradients {
  T *dq, *dk, *dv;
  bool accumulate_q, accumulate_k, accumulate_v;
};
/// `scratch` holds threads() * queries * keys numbers for the time of the call.
template <class T>
void attention_backward(const AttentionShape& shape, const T* q, const T* k, const T* v, const T* weights,
                        const AttentionUpstream<T>& upstream, const AttentionGradients<T>& gradients, T* scratch);

}  // namespace xtape::kernels
