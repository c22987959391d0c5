#pragma once
// Vectors over arrays of any length, for kernel files only (they alone are compiled for the machine's vector unit).
//
// The last, partial vector of an array goes through the same instructions as the others, padded; so the bits of a
// result do not depend on where an element lies.

#include <xsimd/xsimd.hpp>

#include <cstddef>
#include <cstring>
#include <limits>
#include <utility>

#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace xtape::kernels {

template <class T>
using Batch = xsimd::batch<T>;
template <class T>
inline constexpr std::size_t lanes = Batch<T>::size;

/// A vector's extent: Whole, or its first n lanes.
struct Whole {};
struct Part {
  std::size_t n;
};

template <class T>
Batch<T> load(const T* p, Whole) {
  return Batch<T>::load_unaligned(p);
}
// Masked loads and stores touch the part's memory alone.
#if defined(__AVX512F__)
inline Batch<float> load(const float* p, Part part, float padding = 0) {
  return _mm512_mask_loadu_ps(_mm512_set1_ps(padding), static_cast<__mmask16>((1u << part.n) - 1), p);
}
inline Batch<double> load(const double* p, Part part, double padding = 0) {
  return _mm512_mask_loadu_pd(_mm512_set1_pd(padding), static_cast<__mmask8>((1u << part.n) - 1), p);
}
inline void store(float* p, Batch<float> x, Part part) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << part.n) - 1), x);
}
inline void store(double* p, Batch<double> x, Part part) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << part.n) - 1), x);
}
#elif defined(__AVX2__)
inline __m256i first_lanes(std::size_t n, float) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline __m256i first_lanes(std::size_t n, double) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(n)), _mm256_setr_epi64x(0, 1, 2, 3));
}
inline Batch<float> load(const float* p, Part part, float padding = 0) {
  const __m256i mask = first_lanes(part.n, padding);
  return _mm256_blendv_ps(_mm256_set1_ps(padding), _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
}
inline Batch<double> load(const double* p, Part part, double padding = 0) {
  const __m256i mask = first_lanes(part.n, padding);
  return _mm256_blendv_pd(_mm256_set1_pd(padding), _mm256_maskload_pd(p, mask), _mm256_castsi256_pd(mask));
}
inline void store(float* p, Batch<float> x, Part part) { _mm256_maskstore_ps(p, first_lanes(part.n, 0.f), x); }
inline void store(double* p, Batch<double> x, Part part) { _mm256_maskstore_pd(p, first_lanes(part.n, 0.), x); }
#endif

/// Lanes beyond the part hold `padding`.
template <class T>
Batch<T> load(const T* p, Part part, T padding = T(0)) {
  alignas(64) T buffer[lanes<T>];
  for (std::size_t i = 0; i < lanes<T>; ++i) buffer[i] = i < part.n ? p[i] : padding;
  return Batch<T>::load_aligned(buffer);
}
template <class T>
Batch<T> load(const T* p, Whole whole, T /*padding*/) {
  return load(p, whole);
}
template <class T>
void store(T* p, Batch<T> x, Whole) {
  x.store_unaligned(p);
}
template <class T>
void store(T* p, Batch<T> x, Part part) {
  alignas(64) T buffer[lanes<T>];
  x.store_aligned(buffer);
  std::memcpy(p, buffer, part.n * sizeof(T));
}
/// Adds to what stands at p, or overwrites it.
template <bool accumulate, class T, class Extent>
void put(T* p, Batch<T> x, Extent extent) {
  if constexpr (accumulate) x += load(p, extent);
  store(p, x, extent);
}

/// The same with the choice made at run time, for kernels whose arithmetic hides the branch.
template <class T, class Extent>
void put(bool accumulate, T* p, Batch<T> x, Extent extent) {
  if (accumulate)
    put<true>(p, x, extent);
  else
    put<false>(p, x, extent);
}

// What follows is always inlined: a body that is called keeps what it captured in memory, behind pointers that are read
// again for each vector, which halves the speed of cheap bodies.

/// f(i, extent) for the vectors that cover [0, n).
template <class T, class F>
[[gnu::always_inline]] inline void sweep(std::size_t n, F&& f) {
  std::size_t i = 0;
  for (; i + lanes<T> <= n; i += lanes<T>) f(i, Whole{});
  if (i < n) f(i, Part{n - i});
}

/// x *= factor
template <class T>
void scale_row(T* x, std::size_t n, T factor) {
  sweep<T>(n, [&](std::size_t i, auto extent) { store(x + i, load(x + i, extent) * Batch<T>(factor), extent); });
}

/// Sum of f(i, extent) over [0, n), where f gives 0 in the lanes beyond the extent. Four running sums, blocks of 4096
/// added in double: the error stays that of a pairwise sum.
template <class T, class F>
[[gnu::always_inline]] inline double sum_of(std::size_t n, F&& f) {
  constexpr std::size_t block = 4096, width = lanes<T>;
  double total = 0;
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t end = begin + block < n ? begin + block : n;
    Batch<T> s0(T(0)), s1(T(0)), s2(T(0)), s3(T(0));
    std::size_t i = begin;
    for (; i + 4 * width <= end; i += 4 * width) {
      s0 += f(i, Whole{});
      s1 += f(i + width, Whole{});
      s2 += f(i + 2 * width, Whole{});
      s3 += f(i + 3 * width, Whole{});
    }
    for (; i + width <= end; i += width) s0 += f(i, Whole{});
    if (i < end) s1 += f(i, Part{end - i});
    total += static_cast<double>(xsimd::hadd((s0 + s1) + (s2 + s3)));
  }
  return total;
}

/// The same for two sums in one pass: f gives both terms.
template <class T, class F>
[[gnu::always_inline]] inline std::pair<double, double> two_sums_of(std::size_t n, F&& f) {
  constexpr std::size_t block = 4096, width = lanes<T>;
  double total_a = 0, total_b = 0;
  for (std::size_t begin = 0; begin < n; begin += block) {
    const std::size_t end = begin + block < n ? begin + block : n;
    Batch<T> a0(T(0)), b0(T(0)), a1(T(0)), b1(T(0));
    const auto add = [](Batch<T>& a, Batch<T>& b, const auto& terms) { a += terms.first, b += terms.second; };
    std::size_t i = begin;
    for (; i + 2 * width <= end; i += 2 * width) {
      add(a0, b0, f(i, Whole{}));
      add(a1, b1, f(i + width, Whole{}));
    }
    for (; i + width <= end; i += width) add(a0, b0, f(i, Whole{}));
    if (i < end) add(a1, b1, f(i, Part{end - i}));
    total_a += static_cast<double>(xsimd::hadd(a0 + a1));
    total_b += static_cast<double>(xsimd::hadd(b0 + b1));
  }
  return {total_a, total_b};
}

/// 0, 1, 2, ...
template <class T>
Batch<T> first_numbers() {
  alignas(64) T number[lanes<T>];
  for (std::size_t i = 0; i < lanes<T>; ++i) number[i] = static_cast<T>(i);
  return Batch<T>::load_aligned(number);
}
/// `padding` in the lanes beyond the extent.
template <class T>
Batch<T> cut(Batch<T> x, Whole, T /*padding*/ = T(0)) {
  return x;
}
template <class T>
Batch<T> cut(Batch<T> x, Part part, T padding = T(0)) {
  return xsimd::select(first_numbers<T>() < Batch<T>(static_cast<T>(part.n)), x, Batch<T>(padding));
}

/// Largest lane.
#ifdef __AVX512F__
inline float max_of(Batch<float> m) { return _mm512_reduce_max_ps(m); }
inline double max_of(Batch<double> m) { return _mm512_reduce_max_pd(m); }
#endif
template <class T>
T max_of(Batch<T> m) {
  alignas(64) T buffer[lanes<T>];
  m.store_aligned(buffer);
  for (std::size_t half = lanes<T> / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) buffer[i] = buffer[i + half] > buffer[i] ? buffer[i + half] : buffer[i];
  return buffer[0];
}
/// Largest of n numbers; -inf for none. NaN may be lost: callers see it in the sum of exponentials.
template <class T>
T max_of(const T* x, std::size_t n) {
  constexpr T lowest = -std::numeric_limits<T>::infinity();
  Batch<T> m(lowest);
  sweep<T>(n, [&](std::size_t i, auto extent) { m = xsimd::max(m, load(x + i, extent, lowest)); });
  return max_of(m);
}

/// False if any of n numbers is infinite or NaN (x - x is 0 for finite x alone).
template <class T>
bool all_finite(const T* x, std::size_t n) {
  return sum_of<T>(n, [&](std::size_t i, auto extent) {
           const Batch<T> v = load(x + i, extent);
           return v - v;
         }) == 0;
}

}  // namespace xtape::kernels
