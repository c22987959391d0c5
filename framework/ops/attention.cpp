#include <xtape/framework/base/parallel.hpp>
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

template <class T>
AttentionMask<T> mask_of(const char* op, const AttentionShape& s, Tape<T>& tape, const Attend<T>& attend) {
  AttentionMask<T> mask;
  mask.causal = attend.causal;
  mask.window = attend.window.value_or(mask.no_window);
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
  s.queries = sq[1], s.keys = sk[1], s.key_width = sq[2] / heads;
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

template <class T>
T* allocate_weights(const AttentionShape& s, Tape<T>& tape) {
  return tape.scratch(s.batch * s.heads * s.queries * s.keys);
}

/// Backward of all forms; `bias` names nothing if there is none that wants a gradient.
template <class T>
void run_backward(const AttentionShape& s, const AttentionMask<T>& mask, Tape<T>& tape, const T* q, const T* k,
                  const T* v, const T* weights, const kernels::AttentionUpstream<T>& upstream,
                  const kernels::AttentionGradients<T>& gradients, const std::optional<Var<T>>& bias) {
  const bool of_bias = bias && bias->requires_grad();
  const std::size_t pieces = of_bias ? s.batch * s.heads : static_cast<std::size_t>(threads());
  const auto scratch = tape.workspace(pieces * s.queries * s.keys);
  T* dscores = of_bias ? scratch.data() : nullptr;
  kernels::attention_backward(s, mask, q, k, v, weights, upstream, gradients, dscores, scratch.data());
  if (!of_bias) return;
  const auto [db, accumulate] = tape.slot(*bias);
  const PairExtents e = pair_extents(bias->shape());
  kernels::attention_bias_backward(s, {e.batch, e.heads, e.queries}, dscores, db, accumulate);
}

/// Slots of q, k and v, where wanted. The same Var may stand for several of them: the first overwrites, the next ones
/// add.
template <class T>
kernels::AttentionGradients<T> gradients_of(Var<T> q, Var<T> k, Var<T> v) {
  const auto slot = [](Var<T> x) { return x.requires_grad() ? x.tape().slot(x) : GradientSlot<T>{nullptr, false}; };
  const auto dq = slot(q), dk = slot(k), dv = slot(v);
  return {dq.data, dk.data, dv.data, dq.accumulate, dk.accumulate, dv.accumulate};
}

}  // namespace

template <class T>
Var<T> attention(Var<T> q, Operand<T> key, Operand<T> value, std::size_t heads, const Attend<T>& attend) {
  Tape<T>& tape = q.tape("attention");
  Var<T> k = key.on(tape), v = value.on(tape);
  const AttentionShape s = separate_shape("attention", q, k, v, heads, attend);
  const AttentionMask<T> mask = mask_of("attention", s, tape, attend);
  k = apart_from(q, k, s), v = apart_from(q, v, s);
  const std::optional<Var<T>> bias = attend.bias;
  Var<T> y = Inputs<T>({q, k, v}, bias).output(tape, "attention", {s.batch, s.queries, heads * s.value_width});
  T* weights = allocate_weights(s, tape);
  kernels::attention_forward<T>(s, mask, q.data(), k.data(), v.data(), weights, y.data(), nullptr);
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    run_backward<T>(s, mask, t, q.data(), k.data(), v.data(), weights, {t.slot(y).data, nullptr, nullptr},
                    gradients_of(q, k, v), bias);
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
  s.queries = s.keys = shape[1];
  s.key_width = s.value_width = shape[2] / all_heads;
  s.q_stride = s.k_stride = s.v_stride = shape[2];
  s.scale = attend.scale.value_or(1 / std::sqrt(static_cast<double>(s.key_width)));
  const AttentionMask<T> mask = mask_of(name, s, tape, attend);
  const std::optional<Var<T>> bias = attend.bias;
  Var<T> y = Inputs<T>({qkv}, bias).output(tape, name, shape.with_back(heads * s.value_width));
  T* weights = allocate_weights(s, tape);
  const T* x = qkv.data();
  const std::size_t k = heads * s.key_width, v = k + s.kv_heads * s.key_width;  // first columns
  kernels::attention_forward<T>(s, mask, x, x + k, x + v, weights, y.data(), nullptr);
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    const auto [d, old] = qkv.requires_grad() ? t.slot(qkv) : GradientSlot<T>{nullptr, false};
    const auto from = [d = d](std::size_t column) { return d == nullptr ? nullptr : d + column; };
    run_backward<T>(s, mask, t, x, x + k, x + v, weights, {t.slot(y).data, nullptr, nullptr},
                    {from(0), from(k), from(v), old, old, old}, bias);
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
  const AttentionMask<T> mask = mask_of(name, s, tape, attend);
  k = apart_from(q, k, s), v = apart_from(q, v, s);
  const std::optional<Var<T>> bias = attend.bias;
  const Inputs<T> inputs({q, k, v}, bias);
  Var<T> y = inputs.output(tape, name, {s.batch, s.queries, heads * s.value_width});
  Var<T> weights = inputs.output(tape, name, {s.batch, heads, s.queries, s.keys});
  Var<T> log_sum_exp = inputs.output(tape, name, {s.batch, heads, s.queries});
  kernels::attention_forward(s, mask, q.data(), k.data(), v.data(), weights.data(), y.data(), log_sum_exp.data());
  tape.on_backward({y, weights, log_sum_exp}, [=] {
    Tape<T>& t = y.tape();
    run_backward<T>(s, mask, t, q.data(), k.data(), v.data(), weights.data(),
                    {t.slot(y).data, t.slot(weights).data, t.slot(log_sum_exp).data}, gradients_of(q, k, v), bias);
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
