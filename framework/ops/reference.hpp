#pragma once
// Every fused op composed of small ones: the specification that the fused forms are tested against. Slow, and free of
// tricks.

#include <algorithm>
#include <cmath>
#include <limits>

#include <xtape/framework/ops/ops.hpp>
#include <xtape/framework/tape/expr.hpp>

namespace xtape::reference {

/// A constant with the largest element of each row, shape (..., 1). Subtracting it changes no softmax, and keeps exp in
/// range.
template <class T>
Var<T> row_maximum(Var<T> x) {
  const std::size_t rows = x.shape().rows(), columns = x.shape().back();
  xt::xarray<T> largest = xt::zeros<T>(std::vector<std::size_t>{rows});
  for (std::size_t row = 0; row < rows && columns > 0; ++row)
    largest(row) = *std::max_element(x.data() + row * columns, x.data() + (row + 1) * columns);
  return reshape(x.tape().input(largest), x.shape().with_back(1));
}

template <class T>
Var<T> square_root(Var<T> x) {
  return exp(T(0.5) * log(x));
}

template <class T>
Var<T> mean(Var<T> x, Axes axes, bool keep_dims = false) {
  const Var<T> total = sum(x, axes, keep_dims);
  return total / (static_cast<double>(x.size()) / static_cast<double>(total.size()));
}

template <class T>
Var<T> sigmoid(Var<T> x) {
  return 1 / (1 + exp(-x));
}
template <class T>
Var<T> silu(Var<T> x) {
  return x * reference::sigmoid(x);
}
template <class T>
Var<T> softplus(Var<T> x) {
  return log(1 + exp(x));
}
template <class T>
Var<T> gelu_tanh(Var<T> x) {
  return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
template <class T>
Var<T> absolute(Var<T> x) {
  return relu(x) + relu(-x);
}
template <class T>
Var<T> maximum(Var<T> a, Var<T> b) {
  return a + relu(b - a);
}
template <class T>
Var<T> minimum(Var<T> a, Var<T> b) {
  return a - relu(a - b);
}

template <class T>
Var<T> var(Var<T> x, Axes axes, bool keep_dims, double correction) {
  const Var<T> deviation = x - reference::mean(x, axes, true), total = sum(deviation * deviation, axes, keep_dims);
  return total / (static_cast<double>(x.size()) / static_cast<double>(total.size()) - correction);
}
/// Along the last axis: a product with ones on and above the diagonal.
template <class T>
Var<T> cumsum(Var<T> x) {
  const std::size_t n = x.shape().back();
  xt::xarray<T> ones = xt::zeros<T>(std::vector<std::size_t>{n, n});
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i; j < n; ++j) ones(i, j) = 1;
  return reshape(matmul(reshape(x, {x.shape().rows(), n}), x.tape().input(ones)), x.shape());
}

template <class T>
Var<T> reduced(Var<T> losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  const Var<T> total = sum(losses);
  return reduction == Reduction::sum ? total : total / static_cast<double>(losses.size());
}
template <class T>
Var<T> mse(Var<T> x, Var<T> target, Reduction reduction) {
  return reduced((x - target) * (x - target), reduction);
}
template <class T>
Var<T> l1(Var<T> x, Var<T> target, Reduction reduction) {
  return reduced(absolute(x - target), reduction);
}
template <class T>
Var<T> bce_with_logits(Var<T> x, Var<T> target, Reduction reduction) {
  return reduced(-(target * log(reference::sigmoid(x)) + (1 - target) * log(reference::sigmoid(-x))), reduction);
}
template <class T>
Var<T> kl_div(Var<T> x, Var<T> target, Reduction reduction) {
  return reduced(target * (log(target) - x), reduction);
}

template <class T>
Var<T> linear(Var<T> x, Var<T> weight) {
  return matmul(x, transpose(weight));
}
template <class T>
Var<T> linear(Var<T> x, Var<T> weight, Var<T> bias) {
  return matmul(x, transpose(weight)) + bias;
}

template <class T>
Var<T> softmax(Var<T> x) {
  const Var<T> e = exp(x - row_maximum(x));
  return e / sum(e, -1, true);
}

template <class T>
Var<T> log_softmax(Var<T> x) {
  const Var<T> shifted = x - row_maximum(x);
  return shifted - log(sum(exp(shifted), -1, true));
}

template <class T>
Var<T> layer_norm(Var<T> x, double eps = 1e-5) {
  const Var<T> centred = x - reference::mean(x, -1, true);
  const Var<T> variance = reference::mean(centred * centred, -1, true);
  return centred / square_root(variance + eps);
}

template <class T>
Var<T> rms_norm(Var<T> x, double eps = 1e-6) {
  return x / square_root(reference::mean(x * x, -1, true) + eps);
}

/// Ones where a row's number stands: (...) -> (..., classes). Numbers outside of the classes give a row of zeros.
template <class T>
Var<T> one_hot(Tape<T>& tape, const Integers& indices, std::size_t classes) {
  xt::xarray<T> ones = xt::zeros<T>(std::vector<std::size_t>{indices.shape.size(), classes});
  for (std::size_t i = 0; i < indices.shape.size(); ++i)
    if (indices.data[i] >= 0 && indices.data[i] < static_cast<std::int64_t>(classes)) ones(i, indices.data[i]) = 1;
  Shape shape = indices.shape;
  shape.push_back(classes);
  return reshape(tape.input(ones), shape);
}

template <class T>
Var<T> embedding(Var<T> weight, const Integers& tokens) {
  return matmul(reference::one_hot(weight.tape(), tokens, weight.shape()[0]), weight);
}

template <class T>
Var<T> cross_entropy(Var<T> logits, const Integers& targets, const CrossEntropyOptions& options = {}) {
  const std::size_t classes = logits.shape().back();
  const Var<T> counts = reference::one_hot(logits.tape(), targets, classes);
  xt::xarray<T> class_weights = xt::ones<T>(std::vector<std::size_t>{classes});
  for (std::size_t c = 0; c < options.class_weights.size(); ++c)
    class_weights(c) = static_cast<T>(options.class_weights[c]);
  const Var<T> weights = logits.tape().input(class_weights);
  const Var<T> row_counts = sum(counts, -1, true);  // 0 for ignored rows
  const Var<T> distribution =
      (1 - options.label_smoothing) * counts + options.label_smoothing / static_cast<double>(classes) * row_counts;
  const Var<T> losses = -sum(weights * distribution * reference::log_softmax(logits), -1);
  if (options.reduction == Reduction::none) return losses;
  const double counted = static_cast<double>(sum(weights * counts).item());
  return options.reduction == Reduction::sum || counted == 0 ? sum(losses) : sum(losses) / counted;
}

/// Ones where query i may see key j, (batch, Tq, Tk).
template <class T>
xt::xarray<T> visible_pairs(const Shape& q, const Shape& k, const Attend<T>& attend) {
  const std::size_t batch = q[0], queries = q[1], keys = k[1];
  xt::xarray<T> visible = xt::zeros<T>(std::vector<std::size_t>{batch, queries, keys});
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t i = 0; i < queries; ++i)
      for (std::size_t j = 0; j < keys; ++j)
        visible(b, i, j) = (!attend.causal || j + queries <= i + keys) &&
                           (!attend.allow_keys || attend.allow_keys.data[b * keys + j]) &&
                           (!attend.allow_queries || attend.allow_queries.data[b * queries + i]);
  return visible;
}

template <class T>
AttentionResult<T> attention_with_weights(Var<T> q, Var<T> k, Var<T> v, std::size_t heads,
                                          const Attend<T>& attend = {}) {
  Tape<T>& tape = q.tape();
  const Shape sq = q.shape(), sk = k.shape(), sv = v.shape();
  const std::size_t key_width = sq[2] / heads, value_width = sv[2] / heads;
  const xt::xarray<T> pairs = visible_pairs(sq, sk, attend);
  xt::xarray<T> hiding = pairs, empty = xt::zeros<T>(std::vector<std::size_t>{sq[0], sq[1], 1});
  for (T& pair : hiding) pair = pair != T(0) ? T(0) : T(-1e4);
  for (std::size_t b = 0; b < sq[0]; ++b)
    for (std::size_t i = 0; i < sq[1]; ++i) {
      T seen = 0;
      for (std::size_t j = 0; j < sk[1]; ++j) seen += pairs(b, i, j);
      empty(b, i, 0) = seen == T(0);
    }
  const Var<T> visible = tape.input(pairs), nothing = tape.input(empty), hide = tape.input(hiding);
  const double scale = attend.scale.value_or(1 / std::sqrt(static_cast<double>(key_width)));
  std::vector<Var<T>> outputs, weights, log_sums;
  for (std::size_t h = 0; h < heads; ++h) {
    const Var<T> qh = slice(q, 2, h * key_width, (h + 1) * key_width),
                 kh = slice(k, 2, h * key_width, (h + 1) * key_width);
    const Var<T> vh = slice(v, 2, h * value_width, (h + 1) * value_width);
    const Var<T> scores = scale * matmul(qh, transpose(kh, {0, 2, 1}));
    const Var<T> largest = row_maximum(scores + hide);
    const Var<T> e = exp((scores - largest) * visible) * visible;
    const Var<T> total = sum(e, -1, true);
    const Var<T> w = e / (total + nothing);  // a query that sees no key gets weights of 0
    outputs.push_back(matmul(w, vh));
    weights.push_back(reshape(w, {sq[0], 1, sq[1], sk[1]}));
    log_sums.push_back(reshape(log(total) + largest, {sq[0], 1, sq[1]}));
  }
  return {concat(outputs, 2), concat(weights, 1), concat(log_sums, 1)};
}

template <class T>
Var<T> attention(Var<T> q, Var<T> k, Var<T> v, std::size_t heads, const Attend<T>& attend = {}) {
  return reference::attention_with_weights(q, k, v, heads, attend).output;
}

template <class T>
Var<T> attention_packed(Var<T> qkv, std::size_t heads, const Attend<T>& attend = {}) {
  const std::size_t width = qkv.shape()[2] / 3;
  return reference::attention(slice(qkv, 2, 0, width), slice(qkv, 2, width, 2 * width),
                              slice(qkv, 2, 2 * width, 3 * width), heads, attend);
}

}  // namespace xtape::reference
