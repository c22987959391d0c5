#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/attention.hpp>
#include <xtape/framework/ops/ops.hpp>

#include <cmath>

namespace xtape {
namespace {

using kernels::AttentionShape;

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

template <class T>
void finish(const char* op, AttentionShape& s, Tape<T>& tape, const Attend<T>& attend) {
  s.scale = attend.scale.value_or(1 / std::sqrt(static_cast<double>(s.key_width)));
  s.causal = attend.causal;
  s.allow_keys = mask_data(op, "allow_keys", tape, attend.allow_keys, s.batch, s.keys);
  s.allow_queries = mask_data(op, "allow_queries", tape, attend.allow_queries, s.batch, s.queries);
}

template <class T>
AttentionShape separate_shape(const char* op, Var<T> q, Var<T> k, Var<T> v, std::size_t heads,
                              const Attend<T>& attend) {
  Tape<T>& tape = tape_of(op, q, k, v);
  const Shape sq = q.shape(), sk = k.shape(), sv = v.shape();
  require<ShapeError>(sq.rank() == 3 && sk.rank() == 3 && sv.rank() == 3,
                      "[{}] q, k and v must be (batch, time, width), got {}, {} and {}", op, sq, sk, sv);
  require<ShapeError>(heads > 0 && sq[2] > 0 && sq[2] % heads == 0,
                      "[{}] the width of q must be a multiple of heads {}, got {}", op, heads, sq);
  require<ShapeError>(sk[0] == sq[0] && sk[2] == sq[2], "[{}] k must be (batch {}, time, {}) to match q {}, got {}", op,
                      sq[0], sq[2], sq, sk);
  require<ShapeError>(sv[0] == sk[0] && sv[1] == sk[1] && sv[2] % heads == 0,
                      "[{}] v must be (batch {}, time {}, a multiple of heads {}) to match k {}, got {}", op, sk[0],
                      sk[1], heads, sk, sv);
  AttentionShape s{};
  s.batch = sq[0], s.heads = heads, s.queries = sq[1], s.keys = sk[1];
  s.key_width = sq[2] / heads, s.value_width = sv[2] / heads;
  s.q_stride = sq[2], s.k_stride = sk[2], s.v_stride = sv[2];
  finish(op, s, tape, attend);
  return s;
}

/// v as it is, or a copy of it if it is q's memory under another shape: their gradients would be laid over each other.
template <class T>
Var<T> separate_value(Var<T> q, Var<T> v) {
  const bool overlaid = v.data() == q.data() && v.shape() != q.shape();
  return overlaid ? slice(v, 1, 0, v.shape()[1]) : v;
}

template <class T>
T* allocate_weights(const AttentionShape& s, Tape<T>& tape) {
  return tape.scratch(s.batch * s.heads * s.queries * s.keys);
}

template <class T>
void run_backward(const AttentionShape& s, Tape<T>& tape, const T* q, const T* k, const T* v, const T* weights,
                  const kernels::AttentionUpstream<T>& upstream, const kernels::AttentionGradients<T>& gradients) {
  const auto scratch = tape.workspace(static_cast<std::size_t>(threads()) * s.queries * s.keys);
  kernels::attention_backward(s, q, k, v, weights, upstream, gradients, scratch.data());
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
  const Var<T> k = key.on(tape), operand = value.on(tape);
  const AttentionShape s = separate_shape("attention", q, k, operand, heads, attend);
  const Var<T> v = separate_value(q, operand);
  Var<T> y = tape.output("attention", {s.batch, s.queries, heads * s.value_width}, q, k, v);
  T* weights = allocate_weights(s, tape);
  kernels::attention_forward<T>(s, q.data(), k.data(), v.data(), weights, y.data(), nullptr);
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    run_backward<T>(s, t, q.data(), k.data(), v.data(), weights, {t.slot(y).data, nullptr, nullptr},
                    gradients_of(q, k, v));
  });
  return y;
}

template <class T>
Var<T> attention_packed(Var<T> qkv, std::size_t heads, const Attend<T>& attend) {
  Tape<T>& tape = tape_of("attention_packed", qkv);
  const Shape shape = qkv.shape();
  require<ShapeError>(shape.rank() == 3 && heads > 0 && heads <= shape[2] && shape[2] % (3 * heads) == 0,
                      "[attention_packed] qkv must be (batch, time, 3 * heads * head width) for {} heads, got {}",
                      heads, shape);
  const std::size_t width = shape[2] / 3;
  AttentionShape s{};
  s.batch = shape[0], s.heads = heads, s.queries = s.keys = shape[1];
  s.key_width = s.value_width = width / heads;
  s.q_stride = s.k_stride = s.v_stride = shape[2];
  finish("attention_packed", s, tape, attend);
  Var<T> y = tape.output("attention_packed", shape.with_back(width), qkv);
  T* weights = allocate_weights(s, tape);
  const T* x = qkv.data();
  kernels::attention_forward<T>(s, x, x + width, x + 2 * width, weights, y.data(), nullptr);
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    const auto [d, accumulate] = t.slot(qkv);
    run_backward<T>(s, t, x, x + width, x + 2 * width, weights, {t.slot(y).data, nullptr, nullptr},
                    {d, d + width, d + 2 * width, accumulate, accumulate, accumulate});
  });
  return y;
}

template <class T>
AttentionResult<T> attention_with_weights(Var<T> q, Operand<T> key, Operand<T> value, std::size_t heads,
                                          const Attend<T>& attend) {
  const char* name = "attention_with_weights";
  Tape<T>& tape = q.tape(name);
  const Var<T> k = key.on(tape), operand = value.on(tape);
  const AttentionShape s = separate_shape(name, q, k, operand, heads, attend);
  const Var<T> v = separate_value(q, operand);
  Var<T> y = tape.output(name, {s.batch, s.queries, heads * s.value_width}, q, k, v);
  Var<T> weights = tape.output(name, {s.batch, heads, s.queries, s.keys}, q, k, v);
  Var<T> log_sum_exp = tape.output(name, {s.batch, heads, s.queries}, q, k, v);
  kernels::attention_forward(s, q.data(), k.data(), v.data(), weights.data(), y.data(), log_sum_exp.data());
  tape.on_backward({y, weights, log_sum_exp}, [=] {
    Tape<T>& t = y.tape();
    run_backward<T>(s, t, q.data(), k.data(), v.data(), weights.data(),
                    {t.slot(y).data, t.slot(weights).data, t.slot(log_sum_exp).data}, gradients_of(q, k, v));
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
