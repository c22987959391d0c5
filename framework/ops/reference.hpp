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
Var<T> linear_gelu(Var<T> x, Var<T> weight, Var<T> bias) {
  return gelu(reference::linear(x, weight, bias));
}
template <class T>
Var<T> linear_gelu_tanh(Var<T> x, Var<T> weight, Var<T> bias) {
  return reference::gelu_tanh(reference::linear(x, weight, bias));
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

/// Element (b, h, i, j) of an array for pairs, which may lack leading axes or have 1 place there for all.
template <class Element>
Element at_pair(const Element* data, const Shape& shape, std::size_t b, std::size_t h, std::size_t i, std::size_t j) {
  const std::size_t rank = shape.rank(), queries = shape[rank - 2], keys = shape[rank - 1];
  const auto place = [](std::size_t extent, std::size_t index) { return extent == 1 ? 0 : index; };
  std::size_t row = place(queries, i);
  if (rank == 4) row += (place(shape[0], b) * shape[1] + place(shape[1], h)) * queries;
  if (rank == 3) row += place(shape[0], b) * queries;
  return data[row * keys + j];
}

/// Ones where query i of head h may see key j, (batch, Tq, Tk).
template <class T>
xt::xarray<T> visible_pairs(const Shape& q, const Shape& k, std::size_t h, const Attend<T>& attend) {
  const std::size_t batch = q[0], queries = q[1], keys = k[1];
  xt::xarray<T> visible = xt::zeros<T>(std::vector<std::size_t>{batch, queries, keys});
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t i = 0; i < queries; ++i)
      for (std::size_t j = 0; j < keys; ++j)
        visible(b, i, j) = (!attend.causal || j + queries <= i + keys) &&
                           (!attend.window || i + keys < *attend.window + queries + j) &&
                           (!attend.allow_keys || attend.allow_keys.data[b * keys + j]) &&
                           (!attend.allow_queries || attend.allow_queries.data[b * queries + i]) &&
                           (!attend.allow || at_pair(attend.allow.data, attend.allow.shape, b, h, i, j));
  return visible;
}

/// A bias as it stands for head h, to be broadcast to (batch, Tq, Tk).
template <class T>
Var<T> bias_of_head(Var<T> bias, std::size_t h) {
  const Shape s = bias.shape();
  if (s.rank() < 4) return bias;
  const std::size_t head = s[1] == 1 ? 0 : h;
  return reshape(slice(bias, 1, head, head + 1), {s[0], s[2], s[3]});
}

/// A bias must be finite here: -inf, which hides, would give NaN.
template <class T>
AttentionResult<T> attention_with_weights(Var<T> q, Var<T> k, Var<T> v, std::size_t heads,
                                          const Attend<T>& attend = {}) {
  Tape<T>& tape = q.tape();
  const Shape sq = q.shape(), sk = k.shape(), sv = v.shape();
  const std::size_t kv_heads = attend.kv_heads == 0 ? heads : attend.kv_heads;
  const std::size_t key_width = sq[2] / heads, value_width = sv[2] / kv_heads;
  const double scale = attend.scale.value_or(1 / std::sqrt(static_cast<double>(key_width)));
  std::vector<Var<T>> outputs, weights, log_sums;
  for (std::size_t h = 0; h < heads; ++h) {
    const xt::xarray<T> pairs = visible_pairs(sq, sk, h, attend);
    xt::xarray<T> hiding = pairs, empty = xt::zeros<T>(std::vector<std::size_t>{sq[0], sq[1], 1});
    for (T& pair : hiding) pair = pair != T(0) ? T(0) : T(-1e4);
    for (std::size_t b = 0; b < sq[0]; ++b)
      for (std::size_t i = 0; i < sq[1]; ++i) {
        T seen = 0;
        for (std::size_t j = 0; j < sk[1]; ++j) seen += pairs(b, i, j);
        empty(b, i, 0) = seen == T(0);
      }
    const Var<T> visible = tape.input(pairs), nothing = tape.input(empty), hide = tape.input(hiding);
    const std::size_t n = h / (heads / kv_heads);  // of the key and value head that it reads
    const Var<T> qh = slice(q, 2, h * key_width, (h + 1) * key_width);
    const Var<T> kh = slice(k, 2, n * key_width, (n + 1) * key_width);
    const Var<T> vh = slice(v, 2, n * value_width, (n + 1) * value_width);
    Var<T> scores = scale * matmul(qh, transpose(kh, {0, 2, 1}));
    if (attend.bias) scores = scores + bias_of_head(*attend.bias, h);
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
  const std::size_t kv_heads = attend.kv_heads == 0 ? heads : attend.kv_heads;
  const std::size_t all = qkv.shape()[2], width = all / (heads + 2 * kv_heads), k = heads * width;
  const std::size_t v = k + kv_heads * width;
  return reference::attention(slice(qkv, 2, 0, k), slice(qkv, 2, k, v), slice(qkv, 2, v, all), heads, attend);
}

/// Each pair as a complex number times exp(i angle), where the pair's two parts are products with constant matrices.
template <class T>
Var<T> rope(Var<T> x, std::size_t heads, const RopeOptions& options = {}) {
  const Shape shape = x.shape();
  const std::size_t batch = shape[0], time = shape[1], width = shape[2] / heads, pairs = width / 2;
  xt::xarray<T> first = xt::zeros<T>(std::vector<std::size_t>{width, pairs}), second = first;
  for (std::size_t i = 0; i < pairs; ++i) {
    const bool interleaved = options.pairing == RopePairing::interleaved;
    first(interleaved ? 2 * i : i, i) = 1;
    second(interleaved ? 2 * i + 1 : i + pairs, i) = 1;
  }
  xt::xarray<T> cosines = xt::zeros<T>(std::vector<std::size_t>{batch, time, 1, pairs}), sines = cosines;
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t t = 0; t < time; ++t)
      for (std::size_t i = 0; i < pairs; ++i) {
        const double position = options.positions ? static_cast<double>(options.positions.data[b * time + t])
                                                  : static_cast<double>(options.first_position + t);
        const double exponent = -2 * static_cast<double>(i) / static_cast<double>(width);
        cosines(b, t, 0, i) = static_cast<T>(std::cos(position * std::pow(options.base, exponent)));
        sines(b, t, 0, i) = static_cast<T>(std::sin(position * std::pow(options.base, exponent)));
      }
  Tape<T>& tape = x.tape();
  const Var<T> pick_first = tape.input(first), pick_second = tape.input(second);
  const Var<T> c = tape.input(cosines), s = tape.input(sines), split = reshape(x, {batch, time, heads, width});
  const Var<T> a = matmul(split, pick_first), b = matmul(split, pick_second);
  const Var<T> turned = matmul(a * c - b * s, transpose(pick_first)) + matmul(b * c + a * s, transpose(pick_second));
  return reshape(turned, shape);
}

}  // namespace xtape::reference
