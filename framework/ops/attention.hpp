#pragma once
// Attention and rotary positions: part of the catalogue, see ops.hpp.

#include <xtape/framework/ops/operand.hpp>

namespace xtape {

/// Which kernel works: one that makes all weights and keeps them for backward, or one that works tile by tile, makes
/// them again in backward and needs no memory for them. Chosen by size; a result differs by rounding alone.
enum class AttentionKernel { automatic, materialised, tiled };

/// What a query may look at; all parts compose: a key is hidden if any part hides it.
///
/// A query stands at the place of a key: query i at i + Tk - Tq, so that the last one stands at the last key, unless
/// `places` says where. `allow` and `bias` are (Tq, Tk), (B, Tq, Tk) or (B, heads, Tq, Tk). Their rank says which axis
/// is which; B, heads and Tq may be 1, and then stand for all.
template <class T>
struct Attend {
  bool causal = false;                     // a query sees the keys up to its place
  Mask allow_keys = {};                    // (B, Tk): true = may be attended to
  Mask allow_queries = {};                 // (B, Tq): false = asks nothing, its output is 0
  Mask allow = {};                         // of pairs: true = may be attended to
  std::optional<Var<T>> bias = {};         // of pairs: added to the scores; -inf hides, a large finite number does not
  std::optional<std::size_t> window = {};  // key j is visible if place - j < window: 1 is a query's own place
  Integers places = {};                    // (B, Tq): the place of each query, below Tk
  std::optional<std::size_t> keys = {};    // Tk, if only the first places of k and v count, as in a cache
  std::optional<double> scale = {};        // of the scores; default 1 / sqrt(head width)
  double dropout = 0;                      // of the weights, in training; which pairs, see Tape::set_step
  std::size_t kv_heads = 0;                // heads of k and v, a divisor of heads; 0 = as many
  AttentionKernel kernel = AttentionKernel::automatic;
};
template <class T>
struct AttentionResult {
  Var<T> output, weights, log_sum_exp;
};
/// softmax(scale q k^T + bias) v for each head (Vaswani et al. 2017, section 3.2). q (B, Tq, heads * dk), k (B, Tk,
/// kv_heads * dk), v (B, Tk, kv_heads * dv) -> (B, Tq, heads * dv); head h stands at column h * dk and reads key and
/// value head h / (heads / kv_heads) (Ainslie et al. 2023). A query that may see no key gives 0. What a query may not
/// see does not touch its result, whatever it holds.
template <class T>
Var<T> attention(Var<T> q, Operand<T> k, Operand<T> v, std::size_t heads, const Attend<T>& attend = {});
/// The same on one projection's output as it is: qkv (B, T, (heads + 2 * kv_heads) * dk) holds q, k and v side by side.
template <class T>
Var<T> attention_packed(Var<T> qkv, std::size_t heads, const Attend<T>& attend = {});
/// The same with the weights (B, heads, Tq, Tk), before dropout, and the log-sum-exp of the scores (B, heads, Tq), all
/// differentiable. The log-sum-exp of a query that sees no key is -inf.
template <class T>
AttentionResult<T> attention_with_weights(Var<T> q, Operand<T> k, Operand<T> v, std::size_t heads,
                                          const Attend<T>& attend = {});

/// Which two numbers of a head turn together: i and i + width / 2 (LLaMA's weights as they are commonly stored), or 2 i
/// and 2 i + 1 (the paper). A model trained with one is wrong with the other.
enum class RopePairing { halves, interleaved };

struct RopeOptions {
  double base = 10000;
  RopePairing pairing = RopePairing::halves;
  std::size_t first_position = 0;  // of the row's first place
  Integers positions = {};         // (B, T): the position of each place instead, for rows that are padded on the left
};
/// Rotary positions (Su et al. 2021, section 3.4.2): x (B, T, heads * d) -> the same shape, where pair i of each head
/// is turned by the angle position * base^(-2 i / d), so that the product of a query and a key depends on their
/// distance alone. d must be even. Angles are computed in double.
template <class T>
Var<T> rope(Var<T> x, std::size_t heads, const RopeOptions& options = {});

}  // namespace xtape
