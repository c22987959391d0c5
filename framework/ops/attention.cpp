#include <xtape/framework/kernels/attention.hpp>
#include <xtape/framework/ops/ops.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace xtape {
namespace {

using kernels::AttentionMask;
using kernels::AttentionShape;
using kernels::PairTable;

/// Checks a (B, time) mask; null if there is none.
template <class T>
const std::uint8_t* mask_data(const char* op, const char* name, Tape<T>& tape, const Mask& mask, std::size_t batch,
                              std::size_t time) {
  if (!mask) return nullptr;
  tape.check(mask, op);
  require<ShapeError>(mask.shape == Shape{batch, time}, "[{}] {} must be (batch {}, time {}), got {}", op, name, batch,
                      time, mask.shape);
  return mask.data;
}

/// Extents of an array for pairs, 1 where it lacks the axis.
struct PairExtents {
  std::size_t batch, heads, queries;
};
PairExtents pair_extents(const Shape& shape) {
  const std::size_t rank = shape.rank();
  return {rank > 2 ? shape[0] : 1, rank > 3 ? shape[1] : 1, rank > 1 ? shape[rank - 2] : 1};
}

/// Strides of an array for pairs: (Tq, Tk), (B, Tq, Tk) or (B, heads, Tq, Tk), where all but Tk may be 1.
template <class Element>
PairTable<Element> pair_table(const char* op, const char* name, const Element* data, const Shape& shape,
                              const AttentionShape& s) {
  const auto [batch, heads, queries] = pair_extents(shape);
  const auto fits = [](std::size_t extent, std::size_t full) { return extent == full || extent == 1; };
  require<ShapeError>(shape.rank() >= 2 && fits(batch, s.batch) && fits(heads, s.heads) && fits(queries, s.queries) &&
                          shape.back() == s.keys,
                      "[{}] {} must be {}, {} or {}, where all but the last extent may be 1, got {}", op, name,
                      Shape{s.queries, s.keys}, Shape{s.batch, s.queries, s.keys},
                      Shape{s.batch, s.heads, s.queries, s.keys}, shape);
  const auto stride = [](std::size_t extent, std::size_t below) { return extent == 1 ? 0 : below; };
  return {data, stride(batch, heads * queries * s.keys), stride(heads, queries * s.keys), stride(queries, s.keys)};
}

/// Checks the places of queries; null if there are none.
template <class T>
const std::int64_t* place_data(const char* op, const AttentionShape& s, Tape<T>& tape, const Integers& places) {
  if (!places) return nullptr;
  tape.check(places, op);
  require<ShapeError>(places.shape == Shape{s.batch, s.queries}, "[{}] places must be (batch {}, time {}), got {}", op,
                      s.batch, s.queries, places.shape);
  for (std::size_t i = 0; i < s.batch * s.queries; ++i)  // a negative one is a huge one
    require<ShapeError>(static_cast<std::uint64_t>(places.data[i]) < s.keys,
                        "[{}] places must be from 0 to below the number of keys {}, got {}", op, s.keys,
                        places.data[i]);
  return places.data;
}

template <class T>
AttentionMask<T> mask_of(const char* op, const AttentionShape& s, Tape<T>& tape, const Attend<T>& attend) {
  AttentionMask<T> mask;
  mask.causal = attend.causal;
  mask.window = attend.window.value_or(mask.no_window);
  mask.places = place_data(op, s, tape, attend.places);
  mask.allow_keys = mask_data(op, "allow_keys", tape, attend.allow_keys, s.batch, s.keys);
  mask.allow_queries = mask_data(op, "allow_queries", tape, attend.allow_queries, s.batch, s.queries);
  if (attend.allow) {
    tape.check(attend.allow, op);
    mask.allow = pair_table(op, "allow", attend.allow.data, attend.allow.shape, s);
  }
  if (attend.bias) {
    tape.check(*attend.bias, op);
    mask.bias = pair_table<T>(op, "bias", attend.bias->data(), attend.bias->shape(), s);
  }
  return mask;
}

/// The heads of k and v, once it is known that there are any of q.
template <class T>
std::size_t checked_kv_heads(const char* op, std::size_t heads, const Attend<T>& attend) {
  if (attend.kv_heads == 0) return heads;
  require<ShapeError>(heads % attend.kv_heads == 0,
                      "[{}] heads must be a multiple of kv_heads, got heads {} and kv_heads {}", op, heads,
                      attend.kv_heads);
  return attend.kv_heads;
}

/// Sets how many of the `rows` places of k and v are read.
template <class T>
void set_keys(const char* op, AttentionShape& s, std::size_t rows, const Attend<T>& attend) {
  s.key_rows = rows, s.keys = attend.keys.value_or(rows);
  require<ShapeError>(s.keys <= rows, "[{}] keys must be at most the {} places of k, got {}", op, rows, s.keys);
}

template <class T>
AttentionShape separate_shape(const char* op, Var<T> q, Var<T> k, Var<T> v, std::size_t heads,
                              const Attend<T>& attend) {
  tape_of(op, q, k, v);
  const Shape sq = q.shape(), sk = k.shape(), sv = v.shape();
  require<ShapeError>(sq.rank() == 3 && sk.rank() == 3 && sv.rank() == 3,
                      "[{}] q, k and v must be (batch, time, width), got {}, {} and {}", op, sq, sk, sv);
  require<ShapeError>(heads > 0 && sq[2] > 0 && sq[2] % heads == 0,
                      "[{}] the width of q must be a multiple of heads {}, got {}", op, heads, sq);
  AttentionShape s{};
  s.batch = sq[0], s.heads = heads, s.kv_heads = checked_kv_heads(op, heads, attend);
  s.queries = sq[1], s.key_width = sq[2] / heads;
  set_keys(op, s, sk[1], attend);
  require<ShapeError>(sk[0] == sq[0] && sk[2] == s.kv_heads * s.key_width,
                      "[{}] k must be (batch {}, time, {}) to match q {}, got {}", op, sq[0], s.kv_heads * s.key_width,
                      sq, sk);
  require<ShapeError>(sv[0] == sk[0] && sv[1] == sk[1] && sv[2] % s.kv_heads == 0,
                      "[{}] v must be (batch {}, time {}, a multiple of heads {}) to match k {}, got {}", op, sk[0],
                      sk[1], s.kv_heads, sk, sv);
  s.value_width = sv[2] / s.kv_heads;
  s.q_stride = sq[2], s.k_stride = sk[2], s.v_stride = sv[2];
  s.scale = attend.scale.value_or(1 / std::sqrt(static_cast<double>(s.key_width)));
  return s;
}

/// x as it is, or a copy of it if it is q's memory with its heads elsewhere: their gradients would be laid over each
/// other.
template <class T>
Var<T> apart_from(Var<T> q, Var<T> x, const AttentionShape& s) {
  const bool overlaid = x.data() == q.data() && (x.shape() != q.shape() || s.group() > 1);
  return overlaid ? slice(x, 1, 0, x.shape()[1]) : x;
}

/// The inputs of an attention, of which the bias may be absent.
template <class T>
struct Inputs {
  std::array<Var<T>, 4> vars;
  std::size_t count;

  Inputs(std::initializer_list<Var<T>> parts, const std::optional<Var<T>>& bias) : count(parts.size()) {
    std::copy(parts.begin(), parts.end(), vars.begin());
    if (bias) vars[count++] = *bias;
  }
  Var<T> output(Tape<T>& tape, const char* op, const Shape& shape) const {
    return tape.output_from(op, shape, vars.data(), count);
  }
};

/// One call of attention: what forward and backward have in common.
template <class T>
struct Call {
  AttentionShape s;
  AttentionMask<T> mask;
  kernels::AttentionDropout dropout;
  bool tiled;
  const T *q, *k, *v;
  std::optional<Var<T>> bias;
};

/// Up to this many pairs of a head the weights are kept: they fit the cache, and backward need not make them again.
constexpr std::size_t most_pairs_kept = 128 * 128;

template <class T>
kernels::AttentionDropout dropout_of(const char* op, const AttentionShape& s, Tape<T>& tape, double p) {
  require(p >= 0 && p <= 1, "[{}] dropout must be in [0, 1], got {}", op, p);
  if (!tape.training() || p == 0) return {};
  const RandomState random = tape.next_random();
  const std::size_t rows = random.first_row + s.batch;
  require<ShapeError>(
      rows <= 1u << 16 && s.heads <= 1u << 10 && s.queries <= 1u << 19 && s.keys <= 1u << 21 && random.step >> 40 == 0,
      "[{}] dropout counts up to 2^16 rows of the whole batch, 2^10 heads, 2^19 queries, 2^21 keys and "
      "2^40 steps, got {}, {}, {}, {} and step {}",
      op, rows, s.heads, s.queries, s.keys, random.step);
  return {p, {random.seed, random.step, random.ordinal, random.first_row}};
}

template <class T>
Call<T> call_of(const char* op, const AttentionShape& s, Tape<T>& tape, const Attend<T>& attend, const T* q, const T* k,
                const T* v) {
  const bool tiled = attend.kernel == AttentionKernel::tiled ||
                     (attend.kernel == AttentionKernel::automatic && s.queries * s.keys > most_pairs_kept);
  return {s, mask_of(op, s, tape, attend), dropout_of(op, s, tape, attend.dropout), tiled, q, k, v, attend.bias};
}

/// What forward leaves for backward.
template <class T>
struct Kept {
  kernels::AttentionOutput<T> output;
  kernels::AttentionRow<T>* rows;
};

/// Fills y and, where there are any, weights and log_sum_exp. What backward needs lives until clear(); if there is no
/// backward it goes with this call.
template <class T>
Kept<T> run_forward(const Call<T>& c, Tape<T>& tape, kernels::AttentionOutput<T> output, bool backward) {
  const AttentionShape& s = c.s;
  const std::size_t heads = s.batch * s.heads;
  const auto scratch = tape.workspace(c.tiled ? kernels::attention_tiled_scratch()
                                              : kernels::attention_materialised_forward_scratch(s, c.dropout));
  const std::size_t kept_size = c.tiled                     ? heads * s.queries * 2
                                : output.weights == nullptr ? heads * s.queries * s.keys
                                                            : 0;
  const auto passing = tape.workspace(backward ? 0 : kept_size);
  T* kept = backward ? tape.scratch(kept_size) : passing.data();
  if (c.tiled) {
    auto* rows = reinterpret_cast<kernels::AttentionRow<T>*>(kept);
    kernels::attention_tiled_forward(s, c.mask, c.dropout, c.q, c.k, c.v, output, rows, scratch.data());
    return {output, rows};
  }
  if (output.weights == nullptr) output.weights = kept;
  kernels::attention_materialised_forward(s, c.mask, c.dropout, c.q, c.k, c.v, output, scratch.data());
  return {output, nullptr};
}

template <class T>
void run_backward(const Call<T>& c, Tape<T>& tape, const Kept<T>& kept, const kernels::AttentionUpstream<T>& upstream,
                  kernels::AttentionGradients<T> gradients) {
  if (c.bias && c.bias->requires_grad()) {
    const auto slot = tape.slot(*c.bias);
    gradients.dbias = slot.data, gradients.accumulate_bias = slot.accumulate;
    const PairExtents e = pair_extents(c.bias->shape());
    gradients.bias_extents[0] = e.batch, gradients.bias_extents[1] = e.heads, gradients.bias_extents[2] = e.queries;
  }
  const kernels::AttentionOutput<T>& o = kept.output;
  if (!c.tiled) {
    const auto scratch = tape.workspace(kernels::attention_materialised_backward_scratch(c.s, c.dropout, gradients));
    kernels::attention_materialised_backward<T>(c.s, c.mask, c.dropout, c.q, c.k, c.v, o.weights, upstream, gradients,
                                                scratch.data());
    return;
  }
  const auto scratch = tape.workspace(kernels::attention_tiled_scratch());
  const auto deltas = tape.workspace(c.s.batch * c.s.heads * c.s.queries);
  kernels::attention_tiled_backward<T>(c.s, c.mask, c.dropout, c.q, c.k, c.v, {o.y, o.weights, o.log_sum_exp},
                                       kept.rows, upstream, gradients, deltas.data(), scratch.data());
}

/// The slot of an operand, null if it is not wanted. Keys that are not read have the gradient 0.
template <class T>
GradientSlot<T> slot_of(Var<T> x, const AttentionShape& s) {
  if (!x.requires_grad()) return {nullptr, false};
  const GradientSlot<T> slot = x.tape().slot(x);
  if (s.keys == s.key_rows || slot.accumulate) return slot;
  std::fill_n(slot.data, x.size(), T(0));
  return {slot.data, true};
}

/// Slots of q, k and v, where wanted. The same Var may stand for several of them: the first overwrites, the next ones
/// add.
template <class T>
kernels::AttentionGradients<T> gradients_of(Var<T> q, Var<T> k, Var<T> v, const AttentionShape& s) {
  const auto dq = slot_of(q, s), dk = slot_of(k, s), dv = slot_of(v, s);
  return {dq.data, dk.data, dv.data, nullptr, dq.accumulate, dk.accumulate, dv.accumulate, false, {}};
}

}  // namespace

template <class T>
Var<T> attention(Var<T> q, Operand<T> key, Operand<T> value, std::size_t heads, const Attend<T>& attend) {
  const char* name = "attention";
  Tape<T>& tape = q.tape(name);
  Var<T> k = key.on(tape), v = value.on(tape);
  const AttentionShape s = separate_shape(name, q, k, v, heads, attend);
  k = apart_from(q, k, s), v = apart_from(q, v, s);
  const Call<T> call = call_of<T>(name, s, tape, attend, q.data(), k.data(), v.data());
  Var<T> y = Inputs<T>({q, k, v}, call.bias).output(tape, name, {s.batch, s.queries, heads * s.value_width});
  const Kept<T> kept = run_forward(call, tape, {y.data(), nullptr, nullptr}, y.requires_grad());
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    run_backward(call, t, kept, {t.slot(y).data, nullptr, nullptr}, gradients_of(q, k, v, s));
  });
  return y;
}

template <class T>
Var<T> attention_packed(Var<T> qkv, std::size_t heads, const Attend<T>& attend) {
  const char* name = "attention_packed";
  Tape<T>& tape = tape_of(name, qkv);
  const Shape shape = qkv.shape();
  require<ShapeError>(shape.rank() == 3 && heads > 0 && heads <= shape[2],
                      "[attention_packed] qkv must be (batch, time, (heads + 2 * kv_heads) * head width) for {} heads, "
                      "got {}",
                      heads, shape);
  AttentionShape s{};
  s.batch = shape[0], s.heads = heads, s.kv_heads = checked_kv_heads(name, heads, attend);
  const std::size_t all_heads = heads + 2 * s.kv_heads;
  require<ShapeError>(shape[2] % all_heads == 0,
                      "[attention_packed] qkv must be (batch, time, (heads + 2 * kv_heads) * head width) for {} heads "
                      "and {} kv_heads, got {}",
                      heads, s.kv_heads, shape);
  s.queries = shape[1];
  set_keys(name, s, shape[1], attend);
  s.key_width = s.value_width = shape[2] / all_heads;
  s.q_stride = s.k_stride = s.v_stride = shape[2];
  s.scale = attend.scale.value_or(1 / std::sqrt(static_cast<double>(s.key_width)));
  const T* x = qkv.data();
  const std::size_t k = heads * s.key_width, v = k + s.kv_heads * s.key_width;  // first columns
  const Call<T> call = call_of<T>(name, s, tape, attend, x, x + k, x + v);
  Var<T> y = Inputs<T>({qkv}, call.bias).output(tape, name, shape.with_back(heads * s.value_width));
  const Kept<T> kept = run_forward(call, tape, {y.data(), nullptr, nullptr}, y.requires_grad());
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    const auto [d, old] = slot_of(qkv, call.s);
    const auto from = [d = d](std::size_t column) { return d == nullptr ? nullptr : d + column; };
    run_backward(call, t, kept, {t.slot(y).data, nullptr, nullptr},
                 {from(0), from(k), from(v), nullptr, old, old, old, false, {}});
  });
  return y;
}

template <class T>
AttentionResult<T> attention_with_weights(Var<T> q, Operand<T> key, Operand<T> value, std::size_t heads,
                                          const Attend<T>& attend) {
  const char* name = "attention_with_weights";
  Tape<T>& tape = q.tape(name);
  Var<T> k = key.on(tape), v = value.on(tape);
  const AttentionShape s = separate_shape(name, q, k, v, heads, attend);
  k = apart_from(q, k, s), v = apart_from(q, v, s);
  const Call<T> call = call_of<T>(name, s, tape, attend, q.data(), k.data(), v.data());
  const Inputs<T> inputs({q, k, v}, call.bias);
  Var<T> y = inputs.output(tape, name, {s.batch, s.queries, heads * s.value_width});
  Var<T> weights = inputs.output(tape, name, {s.batch, heads, s.queries, s.keys});
  Var<T> log_sum_exp = inputs.output(tape, name, {s.batch, heads, s.queries});
  const Kept<T> kept = run_forward(call, tape, {y.data(), weights.data(), log_sum_exp.data()}, y.requires_grad());
  tape.on_backward({y, weights, log_sum_exp}, [=] {
    Tape<T>& t = y.tape();
    run_backward(call, t, kept, {t.slot(y).data, t.slot(weights).data, t.slot(log_sum_exp).data},
                 gradients_of(q, k, v, s));
  });
  return {y, weights, log_sum_exp};
}

template Var<float> attention(Var<float>, Operand<float>, Operand<float>, std::size_t, const Attend<float>&);
template Var<double> attention(Var<double>, Operand<double>, Operand<double>, std::size_t, const Attend<double>&);
template Var<float> attention_packed(Var<float>, std::size_t, const Attend<float>&);
template Var<double> attention_packed(Var<double>, std::size_t, const Attend<double>&);
template AttentionResult<float> attention_with_weights(Var<float>, Operand<float>, Operand<float>, std::size_t,
                                                       const Attend<float>&);
template AttentionResult<double> attention_with_weights(Var<double>, Operand<double>, Operand<double>, std::size_t,
                                                        const Attend<double>&);

}  // namespace xtape
