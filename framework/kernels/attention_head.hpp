#pragma once
// Where the data of one head lie, and small work on them that both forms of attention share; for kernel files.

#include <algorithm>

#include <xtape/framework/base/random.hpp>
#include <xtape/framework/kernels/attention_mask.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {

/// One head of one batch row.
template <class T>
struct Head {
  const AttentionShape& s;
  std::size_t b, h;
  HeadMask<T> mask;

  Head(const AttentionShape& shape, const AttentionMask<T>& all, std::size_t row, std::size_t head)
      : s(shape), b(row), h(head), mask(all, shape, row, head) {}

  template <class U>
  U* q(U* base) const {
    return base + b * s.queries * s.q_stride + h * s.key_width;
  }
  template <class U>
  U* k(U* base) const {
    return base + b * s.key_rows * s.k_stride + h / s.group() * s.key_width;
  }
  template <class U>
  U* v(U* base) const {
    return base + b * s.key_rows * s.v_stride + h / s.group() * s.value_width;
  }
  template <class U>
  U* y(U* base) const {
    return base + b * s.queries * y_stride() + h * s.value_width;
  }
  template <class U>
  U* weights(U* base) const {
    return base + (b * s.heads + h) * s.queries * s.keys;
  }
  template <class U>
  U* rows(U* base) const {
    return base + (b * s.heads + h) * s.queries;
  }
  std::size_t y_stride() const { return s.heads * s.value_width; }
};

template <class T>
bool finite_block(const T* x, std::size_t rows, std::size_t width, std::size_t stride) {
  Batch<T> zero(T(0));  // x - x is 0 for finite x alone
  for (std::size_t i = 0; i < rows; ++i)
    sweep<T>(width, [&](std::size_t j, auto extent) {
      const Batch<T> v = load(x + i * stride + j, extent);
      zero += v - v;
    });
  return xsimd::hadd(zero) == T(0);
}

template <class T>
T dot(const T* a, const T* b, std::size_t n) {
  return static_cast<T>(
      sum_of<T>(n, [&](std::size_t i, auto extent) { return load(a + i, extent) * load(b + i, extent); }));
}
/// y += factor x
template <class T>
void add_scaled(T* y, T factor, const T* x, std::size_t n) {
  sweep<T>(n, [&](std::size_t i, auto extent) { put<true>(y + i, Batch<T>(factor) * load(x + i, extent), extent); });
}

template <class T>
void clear_block(T* x, std::size_t rows, std::size_t width, std::size_t stride) {
  for (std::size_t i = 0; i < rows; ++i) std::fill_n(x + i * stride, width, T(0));
}

/// exp(score - largest) * factor in place, 0 where hidden; returns the sum.
template <class T>
double exponentials(T* scores, std::size_t n, T largest, T factor) {
  const Batch<T> hidden(HeadMask<T>::hidden), m(largest), f(factor), zero(T(0));
  return sum_of<T>(n, [&](std::size_t j, auto extent) {
    const Batch<T> score = load(scores + j, extent);
    const Batch<T> e = xsimd::select(score == hidden, zero, xsimd::exp(score - m) * f);
    store(scores + j, e, extent);
    return cut(e, extent);
  });
}

/// place(base), or null if there is no array.
template <class U, class Place>
U* at(U* base, Place place) {
  return base == nullptr ? nullptr : place(base);
}

/// factors[j - first] = 0 where dropout drops the pair (query, j), else 1 / (1 - p), for first <= j < last.
template <class T>
void dropout_factors(const Head<T>& head, const AttentionDropout& dropout, std::size_t query, std::size_t first,
                     std::size_t last, T* factors) {
  const T kept = static_cast<T>(kept_factor(dropout.p));
  const std::uint64_t threshold = drop_below(dropout.p);
  const DropoutKey& key = dropout.key;
  // A counter of 128 bits: step (below 2^40) and ordinal of the op, then batch row, head, query, and four keys.
  const std::uint64_t high = key.step << 24 | key.ordinal;
  const std::uint64_t row = (key.first_element + head.b) << 48 | static_cast<std::uint64_t>(head.h) << 38 |
                            static_cast<std::uint64_t>(query) << 19;
  for (std::size_t j = first; j < last;) {
    const auto words = philox(key.seed, high, row | j >> 2);
    for (std::size_t lane = j & 3; lane < 4 && j < last; ++lane, ++j)
      factors[j - first] = words[lane] >= threshold ? kept : T(0);
  }
}

/// x *= y
template <class T>
void multiply_in_place(T* x, const T* y, std::size_t n) {
  sweep<T>(n, [&](std::size_t i, auto extent) { store(x + i, load(x + i, extent) * load(y + i, extent), extent); });
}

}  // namespace xtape::kernels
