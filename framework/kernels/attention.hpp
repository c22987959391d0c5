#pragma once
// Scaled dot-product attention of many heads (Vaswani et al. 2017, section 3.2), the weights kept for backward.

#include <cstddef>
#include <cstdint>

namespace xtape::kernels {

/// q, k, v and y stay as projections make them: (batch, time, heads * width), head h at column h * width, rows of q, k
/// and v at any distance, so that all three may be columns of one projection's output. Query head h reads key and value
/// head h / (heads / kv_heads).
struct AttentionShape {
  std::size_t batch, heads, kv_heads, queries, keys;
  std::size_t key_width, value_width;        // of one head
  std::size_t q_stride, k_stride, v_stride;  // from one time to the next
  double scale;
  std::size_t group() const { return heads / kv_heads; }
};

/// An element for every pair (query, key) of every head; a distance is 0 along an axis whose places share theirs.
template <class Element>
struct PairTable {
  const Element* data = nullptr;  // null: none
  std::size_t batch_stride = 0, head_stride = 0, query_stride = 0;
  std::size_t offset(std::size_t b, std::size_t h, std::size_t i) const {
    return b * batch_stride + h * head_stride + i * query_stride;
  }
};

/// What queries may look at. All parts compose: a key is seen where every part allows it.
template <class T>
struct AttentionMask {
  static constexpr std::size_t no_window = ~std::size_t{0};
  bool causal = false;                          // query i sees the keys j <= i + keys - queries
  std::size_t window = no_window;               // query i sees the keys j > i + keys - queries - window
  const std::uint8_t* allow_keys = nullptr;     // (batch, keys), or null: all
  const std::uint8_t* allow_queries = nullptr;  // (batch, queries), or null: all
  PairTable<std::uint8_t> allow;
  PairTable<T> bias;  // added to the scores; -inf hides

  bool hides() const {
    return causal || window != no_window || allow_keys != nullptr || allow_queries != nullptr ||
           allow.data != nullptr || bias.data != nullptr;
  }
};

/// weights (batch, heads, queries, keys) = softmax(scale q k^T + bias) over the visible keys, 0 elsewhere, and 0 for a
/// query that sees no key; y (batch, queries, heads * value_width) = weights v; log_sum_exp (batch, heads, queries)
/// unless null.
///
/// Rows of k and v that a query may not see do not touch its output, whatever they hold.
template <class T>
void attention_forward(const AttentionShape& shape, const AttentionMask<T>& mask, const T* q, const T* k, const T* v,
                       T* weights, T* y, T* log_sum_exp);

/// Gradients from above; those that are null count as zero.
template <class T>
struct AttentionUpstream {
  const T *dy, *dweights, *dlog_sum_exp;
};
/// Gradients to be set or added to; a null one is not wanted. Laid out like q, k and v. Those of keys and values are
/// sums over the query heads that read them.
template <class T>
struct AttentionGradients {
  T *dq, *dk, *dv;
  bool accumulate_q, accumulate_k, accumulate_v;
};
/// Writes the gradients of the scores, (batch, heads, queries, keys), to `dscores`, if that is not null. `scratch`
/// holds threads() * queries * keys numbers for the time of the call otherwise.
template <class T>
void attention_backward(const AttentionShape& shape, const AttentionMask<T>& mask, const T* q, const T* k, const T* v,
                        const T* weights, const AttentionUpstream<T>& upstream, const AttentionGradients<T>& gradients,
                        T* dscores, T* scratch);

/// The gradient of a bias of shape (batch | 1, heads | 1, queries | 1, keys), given by its extents: dscores summed over
/// the axes that it lacks, in their order.
template <class T>
void attention_bias_backward(const AttentionShape& shape, const std::size_t (&extents)[3], const T* dscores, T* dbias,
                             bool accumulate);

}  // namespace xtape::kernels
