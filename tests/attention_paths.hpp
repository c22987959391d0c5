#pragma once
// The ways to one and the same attention, for tests that hold all of them to one property.

#include <cstring>
#include <string>

#include <xtensor/xview.hpp>

#include "support.hpp"

namespace xtape {

/// An entry and a kernel.
enum class Path { separate, packed, with_weights, separate_tiled, packed_tiled, with_weights_tiled };
inline constexpr Path all_paths[] = {Path::separate,       Path::packed,       Path::with_weights,
                                     Path::separate_tiled, Path::packed_tiled, Path::with_weights_tiled};
/// The paths that take as many keys as they like; the packed one has as many as queries.
inline constexpr Path cross_paths[] = {Path::separate, Path::with_weights, Path::separate_tiled,
                                       Path::with_weights_tiled};

inline const char* to_string(Path path) {
  const char* names[] = {"separate",        "packed",        "with weights",
                         "separate, tiled", "packed, tiled", "with weights, tiled"};
  return names[static_cast<int>(path)];
}
inline void PrintTo(Path path, std::ostream* out) { *out << to_string(path); }

inline bool is_packed(Path path) { return path == Path::packed || path == Path::packed_tiled; }
inline bool has_weights(Path path) { return path == Path::with_weights || path == Path::with_weights_tiled; }
template <class T>
Attend<T> on(Path path, Attend<T> attend) {
  attend.kernel = path >= Path::separate_tiled ? AttentionKernel::tiled : AttentionKernel::materialised;
  return attend;
}

template <class T>
Var<T> attention_by(Path path, Var<T> q, Var<T> k, Var<T> v, std::size_t heads, const Attend<T>& attend = {}) {
  if (is_packed(path)) return attention_packed(concat({q, k, v}, -1), heads, on(path, attend));
  if (has_weights(path)) return attention_with_weights(q, k, v, heads, on(path, attend)).output;
  return attention(q, k, v, heads, on(path, attend));
}

template <class T>
Var<T> self_attention_by(Path path, const MultiHeadAttention<T>& layer, Var<T> x, const Attend<T>& attend = {}) {
  if (is_packed(path)) return layer(x, on(path, attend));
  if (has_weights(path)) return layer.with_weights(x, x, x, on(path, attend)).output;
  return layer(x, x, x, on(path, attend));
}

/// A column of numbers as (batch 1, time, width 1), where one head and scale 1 keep them as they are.
template <class T>
xt::xarray<T> time_column(std::initializer_list<double> numbers) {
  xt::xarray<T> x = zeros_of<T>({1, numbers.size(), 1});
  std::copy(numbers.begin(), numbers.end(), x.begin());
  return x;
}
template <class T>
xt::xarray<T> time_column(std::size_t time, auto number_at) {
  xt::xarray<T> x = zeros_of<T>({1, time, 1});
  for (std::size_t i = 0; i < time; ++i) x(0, i, 0) = static_cast<T>(number_at(i));
  return x;
}

/// Places begin <= t < end of x (batch, time, ...).
template <class T>
xt::xarray<T> times(const xt::xarray<T>& x, std::size_t begin, std::size_t end) {
  Shape shape(x.shape());
  const std::size_t before = shape[1], inner = x.size() / std::max<std::size_t>(1, shape[0] * before);
  shape[1] = end - begin;
  xt::xarray<T> chosen = zeros_of<T>(shape);
  for (std::size_t b = 0; b < shape[0]; ++b)
    std::copy_n(x.data() + (b * before + begin) * inner, shape[1] * inner, chosen.data() + b * shape[1] * inner);
  return chosen;
}

template <class T>
bool same_bits(const xt::xarray<T>& x, const xt::xarray<T>& y) {
  return x.shape() == y.shape() && (x.size() == 0 || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
}

}  // namespace xtape
