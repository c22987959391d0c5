#pragma once
// Scaled dot-product attention of many heads (Vaswani et al. 2017, section 3.2), in two forms: one keeps the weights
// for backward, the other works tile by tile and makes them again (Dao et al. 2022 and Dao 2023).

#include <cstddef>
#include <cstdint>

#include <xtape/framework/kernels/dropout.hpp>

namespace xtape::kernels {

/// q, k, v and y stay as projections make them: (batch, time, heads * width), head h at column h * width, rows of q, k
/// and v at any distance, so that all three may be columns of one projection's output. Query head h reads key and value
/// head h / (heads / kv_heads).
struct AttentionShape {
  std::size_t batch, heads, kv_heads, queries, keys;
  std::size_t key_rows;                      // of k and v for a batch row: keys, or more, of which the first are read
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

/// What queries may look at. All parts compose: a key is seen where every part allows it. A query stands at the place
/// of a key: query i at i + keys - queries, so that the last one stands at the last key, unless `places` says where.
template <class T>
struct AttentionMask {
  static constexpr std::size_t no_window = ~std::size_t{0};
  bool causal = false;                          // a query sees the keys j <= its place
  std::size_t window = no_window;               // a query sees the keys j > its place - window
  const std::int64_t* places = nullptr;         // (batch, queries), each below keys, or null
  const std::uint8_t* allow_keys = nullptr;     // (batch, keys), or null: all
  const std::uint8_t* allow_queries = nullptr;  // (batch, queries), or null: all
  PairTable<std::uint8_t> allow;
  PairTable<T> bias;  // added to the scores; -inf hides

  bool hides() const {
    return causal || window != no_window || allow_keys != nullptr || allow_queries != nullptr ||
           allow.data != nullptr || bias.data != nullptr;
  }
};

/// Dropout of the weights. Whether a pair is dropped is a pure function of the key (whose first_element is the global
/// number of the first batch row) and of its batch row, head, query and key, so it depends on no tile and no thread.
struct AttentionDropout {
  double p = 0;
  DropoutKey key{};
};

/// What forward computes: y (batch, queries, heads * value_width) = dropped(softmax(scale q k^T + bias)) v, over the
/// visible keys, and 0 for a query that sees none. Rows of k and v that a query may not see do not touch its output,
/// whatever they hold.
template <class T>
struct AttentionOutput {
  T* y;
  T* weights;      // (batch, heads, queries, keys) before dropout, 0 where hidden
  T* log_sum_exp;  // (batch, heads, queries) of the scores, -inf for a query that sees no key; null: not wanted
};

/// Gradients from above; those that are null count as zero.
template <class T>
struct AttentionUpstream {
  const T *dy, *dweights, *dlog_sum_exp;
};
/// Gradients to be set or added to; a null one is not wanted. dq, dk and dv are laid out like q, k and v; those of keys
/// and values are sums over the query heads that read them. dbias has the shape (batch | 1, heads | 1, queries | 1,
/// keys) given by its extents and is summed over the axes that it lacks, in their order.
template <class T>
struct AttentionGradients {
  T *dq, *dk, *dv, *dbias;
  bool accumulate_q, accumulate_k, accumulate_v, accumulate_bias;
  std::size_t bias_extents[3];
};

// ---- attention_materialised.cpp: the weights are always made, and backward reads them

/// Numbers that forward and backward need for the time of a call.
std::size_t attention_materialised_forward_scratch(const AttentionShape& shape, const AttentionDropout& dropout);
template <class T>
std::size_t attention_materialised_backward_scratch(const AttentionShape& shape, const AttentionDropout& dropout,
                                                    const AttentionGradients<T>& gradients);
template <class T>
void attention_materialised_forward(const AttentionShape& shape, const AttentionMask<T>& mask,
                                    const AttentionDropout& dropout, const T* q, const T* k, const T* v,
                                    const AttentionOutput<T>& output, T* scratch);
template <class T>
void attention_materialised_backward(const AttentionShape& shape, const AttentionMask<T>& mask,
                                     const AttentionDropout& dropout, const T* q, const T* k, const T* v,
                                     const T* weights, const AttentionUpstream<T>& upstream,
                                     const AttentionGradients<T>& gradients, T* scratch);

// ---- attention_tiled.cpp: no weights, unless asked for; memory grows with batch * heads * queries

/// What forward saves of each query: the weight of a score is exp(score - largest) * inverse_sum. Kept apart, since one
/// rounded log-sum-exp loses accuracy at large scores.
template <class T>
struct AttentionRow {
  T largest, inverse_sum;
};
std::size_t attention_tiled_scratch();  // of T, for forward and backward
/// output.weights may be null. `rows` (batch, heads, queries) is saved for backward.
template <class T>
void attention_tiled_forward(const AttentionShape& shape, const AttentionMask<T>& mask, const AttentionDropout& dropout,
                             const T* q, const T* k, const T* v, const AttentionOutput<T>& output,
                             AttentionRow<T>* rows, T* scratch);
/// Reads y and, where gradients come from above for them, the weights. `deltas` (batch, heads, queries) is for the time
/// of the call.
template <class T>
void attention_tiled_backward(const AttentionShape& shape, const AttentionMask<T>& mask,
                              const AttentionDropout& dropout, const T* q, const T* k, const T* v,
                              const AttentionOutput<const T>& output, const AttentionRow<T>* rows,
                              const AttentionUpstream<T>& upstream, const AttentionGradients<T>& gradients, T* deltas,
                              T* scratch);

}  // namespace xtape::kernels
