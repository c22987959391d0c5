#pragma once
// The catalogue of ops. Each takes its first operand as Var<T>, which names the element type (float or double) and the
// tape; further operands may be a Var, a Parameter or a number. Shapes are written (batch, time, width); `...` stands
// for any leading axes. Every op checks its operands before it computes anything and throws a sentence that names it:
// ShapeError for shapes, axes and indices, TapeError for stale or foreign handles.
//
// One family stands in one .cpp beside this file; the composed version of every fused op is in reference.hpp. Losses
// and attention have headers of their own, which this one brings along.

#include <array>
#include <concepts>
#include <span>
#include <string_view>
#include <vector>

#include <xtape/framework/ops/attention.hpp>
#include <xtape/framework/ops/losses.hpp>
#include <xtape/framework/ops/operand.hpp>

namespace xtape {

// ---- arithmetic.cpp: elementwise, with NumPy's broadcasting

// clang-format off
template <class T> Var<T> operator+(Var<T> a, Var<T> b);
template <class T> Var<T> operator-(Var<T> a, Var<T> b);
template <class T> Var<T> operator*(Var<T> a, Var<T> b);
template <class T> Var<T> operator/(Var<T> a, Var<T> b);
template <class T> Var<T> operator-(Var<T> x);
template <class T> Var<T> operator+(Var<T> a, Operand<T> b) { return a + b.on(a.tape("add")); }
template <class T> Var<T> operator-(Var<T> a, Operand<T> b) { return a - b.on(a.tape("subtract")); }
template <class T> Var<T> operator*(Var<T> a, Operand<T> b) { return a * b.on(a.tape("multiply")); }
template <class T> Var<T> operator/(Var<T> a, Operand<T> b) { return a / b.on(a.tape("divide")); }
template <class T> Var<T> operator+(Operand<T> a, Var<T> b) { return a.on(b.tape("add")) + b; }
template <class T> Var<T> operator-(Operand<T> a, Var<T> b) { return a.on(b.tape("subtract")) - b; }
template <class T> Var<T> operator*(Operand<T> a, Var<T> b) { return a.on(b.tape("multiply")) * b; }
template <class T> Var<T> operator/(Operand<T> a, Var<T> b) { return a.on(b.tape("divide")) / b; }
// clang-format on

/// a to the power of b. A negative number has integral powers alone, others give NaN; 0 to the power of 0 is 1.
template <class T>
Var<T> pow(Var<T> a, Operand<T> b);
/// The larger of a and b; NaN if either is. Where they are equal each gets half of the gradient.
template <class T>
Var<T> maximum(Var<T> a, Operand<T> b);
/// The smaller of a and b, likewise.
template <class T>
Var<T> minimum(Var<T> a, Operand<T> b);
/// silu(gate) * up, the gate of a gated feed-forward layer (Shazeer 2020, section 2).
template <class T>
Var<T> swiglu(Var<T> gate, Operand<T> up);

// ---- where.cpp

/// a where the condition holds, b elsewhere; all three broadcast. The condition is a mask or an expression of bool.
/// Gradients are selected, not multiplied: what was not chosen gets 0, whatever it holds.
template <class T>
Var<T> where(Mask condition, Var<T> a, Var<T> b);
// Forwarding references, since xt::where takes any three things and is found through an xtensor condition.
template <class T, class Condition>
Var<T> where(Condition&& condition, Var<T> a, Var<T> b) {
  return where(a.tape("where").mask(condition), a, b);
}
template <class T, class Condition, std::convertible_to<In<T>> Other>
Var<T> where(Condition&& condition, Var<T> a, Other&& b) {
  return where(condition, a, In<T>(b).on(a.tape("where")));
}
template <class T, class Condition, std::convertible_to<In<T>> Other>
Var<T> where(Condition&& condition, Other&& a, Var<T> b) {
  return where(condition, In<T>(a).on(b.tape("where")), b);
}

// ---- elementwise.cpp. Outside of a function's domain the result is NaN or infinite, as in std.

template <class T>
Var<T> exp(Var<T> x);
/// Natural logarithm.
template <class T>
Var<T> log(Var<T> x);
/// log(1 + x), accurate near 0.
template <class T>
Var<T> log1p(Var<T> x);
template <class T>
Var<T> sqrt(Var<T> x);
/// 1 / sqrt(x)
template <class T>
Var<T> rsqrt(Var<T> x);
template <class T>
Var<T> square(Var<T> x);
/// The derivative at 0 is 0.
template <class T>
Var<T> abs(Var<T> x);
template <class T>
Var<T> sin(Var<T> x);
template <class T>
Var<T> cos(Var<T> x);
template <class T>
Var<T> tanh(Var<T> x);
/// 1 / (1 + exp(-x))
template <class T>
Var<T> sigmoid(Var<T> x);
/// x sigmoid(x) (Hendrycks and Gimpel 2016, section 2), also called swish.
template <class T>
Var<T> silu(Var<T> x);
/// log(1 + exp(x)), without overflow.
template <class T>
Var<T> softplus(Var<T> x);
/// max(x, 0). NaN stays NaN; the derivative at 0 is 0.
template <class T>
Var<T> relu(Var<T> x);
/// x Phi(x) with the exact normal distribution function Phi (Hendrycks and Gimpel 2016); PyTorch's
/// gelu(approximate="none").
template <class T>
Var<T> gelu(Var<T> x);
/// Its approximation x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2; PyTorch's gelu(approximate="tanh").
template <class T>
Var<T> gelu_tanh(Var<T> x);
/// x, but at least low and at most high. NaN stays NaN; the derivative is 1 from low to high, both included, and 0
/// beyond. Throws Error if low is above high.
template <class T>
Var<T> clamp(Var<T> x, double low, double high);

// ---- reductions.cpp

/// Sum of all elements, a scalar.
template <class T>
Var<T> sum(Var<T> x);
/// Sum over the named axes; with keep_dims they stay, with extent 1.
template <class T>
Var<T> sum(Var<T> x, Axes axes, bool keep_dims = false);
/// Mean of all elements, a scalar. Throws ShapeError if there are none.
template <class T>
Var<T> mean(Var<T> x);
template <class T>
Var<T> mean(Var<T> x, Axes axes, bool keep_dims = false);
/// Variance: squared deviations from the mean, added up and divided by (count - correction). PyTorch's default
/// correction of 1 estimates the variance that a sample was drawn from; 0 is that of the numbers themselves. Throws
/// ShapeError unless there are more elements than the correction.
template <class T>
Var<T> var(Var<T> x, double correction = 1);
template <class T>
Var<T> var(Var<T> x, Axes axes, bool keep_dims = false, double correction = 1);
/// Largest element; NaN if there is one. Equal largest ones share the gradient (PyTorch's amax). Throws ShapeError if
/// there are none.
template <class T>
Var<T> max(Var<T> x);
template <class T>
Var<T> max(Var<T> x, Axes axes, bool keep_dims = false);
/// y[i] = x[0] + ... + x[i] along an axis.
template <class T>
Var<T> cumsum(Var<T> x, int axis);

// ---- matmul.cpp

/// a (..., m, k) times b (..., k, n) -> (..., m, n); leading axes broadcast, and operands of rank 1 are a row and a
/// column that leave no axis behind (numpy.matmul).
template <class T>
Var<T> matmul(Var<T> a, Operand<T> b);

// ---- linear.cpp

/// x (..., in), weight (out, in), bias (out,) -> x weight^T + bias (..., out).
template <class T>
Var<T> linear(Var<T> x, Operand<T> weight, OptionalOperand<T> bias = {});
/// gelu(linear(x, weight, bias)), where bias and gelu take one pass each way beside the products.
template <class T>
Var<T> linear_gelu(Var<T> x, Operand<T> weight, OptionalOperand<T> bias = {});
/// gelu_tanh(linear(x, weight, bias)), likewise.
template <class T>
Var<T> linear_gelu_tanh(Var<T> x, Operand<T> weight, OptionalOperand<T> bias = {});

// ---- einsum.cpp

/// Einstein's summation over letters, "bqd,bkd->bqk": one letter an axis, letters that the result does not name are
/// summed over (numpy.einsum). One to four operands, taken from left to right, each pair as one batched matrix product;
/// at most four letters an operand, result or intermediate result. Throws ShapeError for a letter with two extents, and
/// for what is not served: a letter twice in one operand, "...", a pattern without "->".
template <class T, std::same_as<Var<T>>... More>
Var<T> einsum(std::string_view pattern, Var<T> first, More... more) {
  return einsum(pattern, std::initializer_list<Var<T>>{first, more...});
}
template <class T>
Var<T> einsum(std::string_view pattern, std::initializer_list<Var<T>> operands);

// ---- shape.cpp

/// The same numbers under another shape of the same size. Shares value and gradient with x: costs nothing.
template <class T>
Var<T> reshape(Var<T> x, Shape shape);
/// All axes in reverse order.
template <class T>
Var<T> transpose(Var<T> x);
/// Axis i of the result is axis permutation[i] of x.
template <class T>
Var<T> transpose(Var<T> x, Axes permutation);
/// The places begin <= i < end of one axis.
template <class T>
Var<T> slice(Var<T> x, int axis, std::size_t begin, std::size_t end);
/// Joined along one axis; all other extents must agree. At most 64 parts.
template <class T>
Var<T> concat(std::span<const Var<T>> parts, int axis);
template <class T>
Var<T> concat(std::initializer_list<Var<T>> parts, int axis) {
  return concat(std::span<const Var<T>>(parts.begin(), parts.size()), axis);
}
template <class T>
Var<T> concat(const std::vector<Var<T>>& parts, int axis) {
  return concat(std::span<const Var<T>>(parts), axis);
}

/// Joined along a new axis; all shapes must agree. At most 64 parts.
template <class T>
Var<T> stack(std::span<const Var<T>> parts, int axis);
template <class T>
Var<T> stack(std::initializer_list<Var<T>> parts, int axis) {
  return stack(std::span<const Var<T>>(parts.begin(), parts.size()), axis);
}
template <class T>
Var<T> stack(const std::vector<Var<T>>& parts, int axis) {
  return stack(std::span<const Var<T>>(parts), axis);
}
/// Cut along one axis into parts of the given extents, which must add up to its own: `auto [q, k] = split(x, {4, 8},
/// -1);`.
template <class T, std::size_t N>
std::array<Var<T>, N> split(Var<T> x, const std::size_t (&extents)[N], int axis) {
  std::array<Var<T>, N> parts;
  split(x, std::span<const std::size_t>(extents), axis, std::span<Var<T>>(parts));
  return parts;
}
/// The same into N equal parts: `auto [q, k, v] = split<3>(qkv, -1);`.
template <std::size_t N, class T>
std::array<Var<T>, N> split(Var<T> x, int axis) {
  std::array<Var<T>, N> parts;
  split(x, axis, std::span<Var<T>>(parts));
  return parts;
}
/// What both stand on, for numbers of parts known at run time.
template <class T>
void split(Var<T> x, std::span<const std::size_t> extents, int axis, std::span<Var<T>> parts);
template <class T>
void split(Var<T> x, int axis, std::span<Var<T>> parts);
/// `before` and `after` places more along one axis, holding `value`.
template <class T>
Var<T> pad(Var<T> x, int axis, std::size_t before, std::size_t after, double value = 0);
/// The same numbers, cut off from what made them: no gradient passes. Costs nothing.
template <class T>
Var<T> detach(Var<T> x);

// ---- select.cpp. Indices are any integral expression; one out of range is a ShapeError that names its place.

/// The places of one axis whose numbers stand in indices (count,), in that order and as often as they stand there.
template <class T>
Var<T> index_select(Var<T> x, int axis, Integers indices);
template <class T, class Indices>
Var<T> index_select(Var<T> x, int axis, const Indices& indices) {
  return index_select(x, axis, x.tape("index_select").integers(indices));
}
/// Along one axis, y[.., i, ..] = x[.., indices[.., i, ..], ..]: indices have the rank of x and its extents in the
/// other axes (numpy.take_along_axis, torch.gather).
template <class T>
Var<T> gather(Var<T> x, int axis, Integers indices);
template <class T, class Indices>
Var<T> gather(Var<T> x, int axis, const Indices& indices) {
  return gather(x, axis, x.tape("gather").integers(indices));
}
/// One axis in reverse order.
template <class T>
Var<T> flip(Var<T> x, int axis);
/// A constant: indices (...) below classes -> (..., classes), 1 at the index and 0 elsewhere.
template <class T>
Var<T> one_hot(Tape<T>& tape, Integers indices, std::size_t classes);
template <class T, class Indices>
Var<T> one_hot(Tape<T>& tape, const Indices& indices, std::size_t classes) {
  return one_hot(tape, tape.integers(indices), classes);
}

// ---- softmax.cpp

/// exp(x - max) / sum(exp(x - max)) along an axis. A row of nothing but -inf gives NaN, as in PyTorch.
template <class T>
Var<T> softmax(Var<T> x, int axis = -1);
/// log softmax(x), finite where softmax underflows.
template <class T>
Var<T> log_softmax(Var<T> x, int axis = -1);

// ---- layer_norm.cpp

/// (x - mean) / sqrt(variance + eps) * gain + bias over the last axis, with the biased variance (Ba, Kiros, Hinton
/// 2016, section 3). x (..., width), gain and bias (width,).
template <class T>
Var<T> layer_norm(Var<T> x, OptionalOperand<T> gain = {}, OptionalOperand<T> bias = {}, double eps = 1e-5);

// ---- rms_norm.cpp

/// x / sqrt(mean(x^2) + eps) * gain over the last axis (Zhang and Sennrich 2019, equation 4). x (..., width), gain
/// (width,).
template <class T>
Var<T> rms_norm(Var<T> x, OptionalOperand<T> gain = {}, double eps = 1e-6);

// ---- embedding.cpp

struct EmbeddingOptions {
  std::optional<std::int64_t> padding_index = {};  // a token whose row receives no gradient
};
/// Rows of weight (count, width) by number: tokens (...) -> (..., width). Tokens are any integral expression of rank at
/// most 3. Repeated tokens add up in the gradient.
template <class T>
Var<T> embedding(Var<T> weight, Integers tokens, EmbeddingOptions options = {});
template <class T, class Tokens>
Var<T> embedding(Var<T> weight, const Tokens& tokens, EmbeddingOptions options = {}) {
  return embedding(weight, weight.tape("embedding").integers(tokens), options);
}

// ---- dropout.cpp

/// In training each element is 0 with probability p and x / (1 - p) otherwise (Srivastava et al. 2014); in evaluation,
/// or with p = 0, x itself. Which ones is a function of the tape's seed, its step, the op's place in the record, and
/// the element's place in the whole batch (Tape::set_step).
template <class T>
Var<T> dropout(Var<T> x, double p);

}  // namespace xtape
