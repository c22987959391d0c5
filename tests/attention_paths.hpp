#pragma once
// The ways to one and the same attention, for tests that hold all of them to one property.

#include <cstring>
#include <string>

#include <xtensor/xview.hpp>

#include "support.hpp"

namespace xtape {

enum class Path { separate, packed, with_weights };
inline constexpr Path all_paths[] = {Path::separate, Path::packed, Path::with_weights};
/// The paths that take as many keys as they like; the packed one has as many as queries.
inline constexpr Path cross_paths[] = {Path::separate, Path::with_weights};

inline const char* to_string(Path path) {
  return path == Path::separate ? "separate" : path == Path::packed ? "packed" : "with weights";
}
inline void PrintTo(Path path, std::ostream* out) { *out << to_string(path); }

template <class T>
Var<T> attention_by(Path path, Var<T> q, Var<T> k, Var<T> v, std::size_t heads, const Attend<T>& attend = {}) {
  if (path == Path::packed) return attention_packed(concat({q, k, v}, -1), heads, attend);
  if (path == Path::with_weights) return attention_with_weights(q, k, v, heads, attend).output;
  return attention(q, k, v, heads, attend);
}

template <class T>
Var<T> self_attention_by(Path path, const MultiHeadAttention<T>& layer, Var<T> x, const Attend<T>& attend = {}) {
  if (path == Path::packed) return layer(x, attend);
  if (path == Path::with_weights) return layer.with_weights(x, x, x, attend).output;
  return layer(x, x, x, attend);
}

/// A column of numbers as (batch 1, time, width 1), where one head and scale 1 keep them as they are.
template <class T>
xt::xarray<T> column(std::initializer_list<double> numbers) {
  xt::xarray<T> x = xt::zeros<T>(std::vector<std::size_t>{1, numbers.size(), 1});
  std::copy(numbers.begin(), numbers.end(), x.begin());
  return x;
}
template <class T>
xt::xarray<T> column(std::size_t time, auto number_at) {
  xt::xarray<T> x = xt::zeros<T>(std::vector<std::size_t>{1, time, 1});
  for (std::size_t i = 0; i < time; ++i) x(0, i, 0) = static_cast<T>(number_at(i));
  return x;
}

/// Places begin <= t < end of x (batch, time, ...).
template <class T>
xt::xarray<T> times(const xt::xarray<T>& x, std::size_t begin, std::size_t end) {
  return xt::view(x, xt::all(), xt::range(begin, end));
}

template <class T>
bool same_bits(const xt::xarray<T>& x, const xt::xarray<T>& y) {
  return x.shape() == y.shape() && (x.size() == 0 || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
}
template <class Array>
bool all_zero(const Array& x) {
  return std::all_of(x.begin(), x.end(), [](auto element) { return element == 0; });
}
template <class Array>
bool all_finite(const Array& x) {
  return std::all_of(x.begin(), x.end(), [](auto element) { return std::isfinite(element); });
}

}  // namespace xtape
