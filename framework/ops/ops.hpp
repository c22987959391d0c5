#pragma once
// The catalogue of ops. Each takes its first operand as Var<T>, which names the element type (float or double) and the
// tape; further operands may be a Var, a Parameter or a number. Shapes are written (batch, time, width); `...` stands
// for any leading axes. Every op checks its operands before it computes anything and throws a sentence that names it:
// ShapeError for shapes, axes and indices, TapeError for stale or foreign handles.
//
// One family stands in one .cpp beside this file; the composed version of every fused op is in reference.hpp. Losses
// and attention have headers of their own, which this one brings along.

#include <span>

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

// ---- elementwise.cpp

template <class T>
Var<T> exp(Var<T> x);
/// Natural logarithm.
template <class T>
Var<T> log(Var<T> x);
template <class T>
Var<T> tanh(Var<T> x);
/// max(x, 0). NaN stays NaN; the derivative at 0 is 0.
template <class T>
Var<T> relu(Var<T> x);
/// x Phi(x) with the exact normal distribution function Phi (Hendrycks and Gimpel 2016); PyTorch's
/// gelu(approximate="none").
template <class T>
Var<T> gelu(Var<T> x);

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

// ---- matmul.cpp

/// a (..., m, k) times b (..., k, n) -> (..., m, n); leading axes broadcast, and operands of rank 1 are a row and a
/// column that leave no axis behind (numpy.matmul).
template <class T>
Var<T> matmul(Var<T> a, Operand<T> b);
/// x (..., in), weight (out, in), bias (out,) -> x weight^T + bias (..., out).
template <class T>
Var<T> linear(Var<T> x, Operand<T> weight, OptionalOperand<T> bias = {});

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
