#pragma once
// Attention: part of the catalogue, see ops.hpp.

#include <xtape/framework/ops/operand.hpp>

namespace xtape {

/// What a query may look at; all parts compose.
template <class T>
struct Attend {
  bool causal = false;               // the last query sits on the last key: query i sees the keys j <= i + Tk - Tq
  Mask allow_keys = {};              // (B, Tk): true = may be attended to
  Mask allow_queries = {};           // (B, Tq): false = asks nothing, its output is 0
  std::optional<double> scale = {};  // of the scores; default 1 / sqrt(head width)
};
template <class T>
struct AttentionResult {
  Var<T> output, weights, log_sum_exp;
};
/// softmax(scale q k^T) v for each head (Vaswani et al. 2017, section 3.2). q (B, Tq, heads * dk), k (B, Tk, heads *
/// dk), v (B, Tk, heads * dv) -> (B, Tq, heads * dv); head h stands at column h * dk. A query that may see no key gives
/// 0. What a query may not see does not touch its result, whatever it holds.
template <class T>
Var<T> attention(Var<T> q, Operand<T> k, Operand<T> v, std::size_t heads, const Attend<T>& attend = {});
/// The same on one projection's output as it is: qkv (B, T, 3 * heads * dk) holds q, k and v side by side.
template <class T>
Var<T> attention_packed(Var<T> qkv, std::size_t heads, const Attend<T>& attend = {});
/// The same with the weights (B, heads, Tq, Tk) and the log-sum-exp of the scores (B, heads, Tq), all differentiable.
/// The log-sum-exp of a query that sees no key is -inf.
template <class T>
AttentionResult<T> attention_with_weights(Var<T> q, Operand<T> k, Operand<T> v, std::size_t heads,
                                          const Attend<T>& attend = {});

}  // namespace xtape
