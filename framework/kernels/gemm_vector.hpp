#pragma once
// Vectors of a width that each including file chooses, for the matrix products compiled for one instruction set each.
// All names are local to the file, so that no code of one instruction set is linked into another's. Nothing is here for
// a file that is compiled without AVX2.

#ifdef __AVX2__
#include <immintrin.h>

#include <cstddef>
#include <utility>

namespace xtape::kernels {
namespace {

template <class T, std::size_t bytes>
struct VectorOf {
  using type [[gnu::vector_size(bytes)]] = T;
};
template <class T, std::size_t bytes>
using Vector = typename VectorOf<T, bytes>::type;

// a * b + c, rounded once.
[[gnu::always_inline]] inline Vector<float, 32> fma(Vector<float, 32> a, Vector<float, 32> b, Vector<float, 32> c) {
  return _mm256_fmadd_ps(a, b, c);
}
[[gnu::always_inline]] inline Vector<double, 32> fma(Vector<double, 32> a, Vector<double, 32> b, Vector<double, 32> c) {
  return _mm256_fmadd_pd(a, b, c);
}

// The first n lanes; the others are loaded as 0 and not stored, nor is their memory touched.
[[gnu::always_inline]] inline __m256i lanes_below(std::size_t n, float) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
[[gnu::always_inline]] inline __m256i lanes_below(std::size_t n, double) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(n)), _mm256_setr_epi64x(0, 1, 2, 3));
}
[[gnu::always_inline]] inline void load_part(const float* p, std::size_t n, Vector<float, 32>& v) {
  v = _mm256_maskload_ps(p, lanes_below(n, 0.f));
}
[[gnu::always_inline]] inline void load_part(const double* p, std::size_t n, Vector<double, 32>& v) {
  v = _mm256_maskload_pd(p, lanes_below(n, 0.));
}
[[gnu::always_inline]] inline void store_part(float* p, std::size_t n, Vector<float, 32> v) {
  _mm256_maskstore_ps(p, lanes_below(n, 0.f), v);
}
[[gnu::always_inline]] inline void store_part(double* p, std::size_t n, Vector<double, 32> v) {
  _mm256_maskstore_pd(p, lanes_below(n, 0.), v);
}

#ifdef __AVX512F__
[[gnu::always_inline]] inline Vector<float, 64> fma(Vector<float, 64> a, Vector<float, 64> b, Vector<float, 64> c) {
  return _mm512_fmadd_ps(a, b, c);
}
[[gnu::always_inline]] inline Vector<double, 64> fma(Vector<double, 64> a, Vector<double, 64> b, Vector<double, 64> c) {
  return _mm512_fmadd_pd(a, b, c);
}
[[gnu::always_inline]] inline void load_part(const float* p, std::size_t n, Vector<float, 64>& v) {
  v = _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
}
[[gnu::always_inline]] inline void load_part(const double* p, std::size_t n, Vector<double, 64>& v) {
  v = _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1), p);
}
[[gnu::always_inline]] inline void store_part(float* p, std::size_t n, Vector<float, 64> v) {
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), v);
}
[[gnu::always_inline]] inline void store_part(double* p, std::size_t n, Vector<double, 64> v) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << n) - 1), v);
}
#endif

template <class V, class T>
[[gnu::always_inline]] inline V load_whole(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
template <class V, class T>
[[gnu::always_inline]] inline void store_whole(T* p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}
template <class V, class T>
[[gnu::always_inline]] inline V load_up_to(const T* p, std::size_t n) {
  if (n >= sizeof(V) / sizeof(T)) return load_whole<V>(p);
  V v{};
  if (n > 0) load_part(p, n, v);
  return v;
}
template <class V, class T>
[[gnu::always_inline]] inline void store_up_to(T* p, std::size_t n, V v) {
  if (n >= sizeof(V) / sizeof(T))
    store_whole(p, v);
  else
    store_part(p, n, v);
}

/// Transposes a square of as many vectors as they have lanes: each round shuffles the first half of the rows into the
/// second, as cards.
template <class T, std::size_t bytes>
[[gnu::always_inline]] inline void transpose_square(Vector<T, bytes>* rows) {
  constexpr std::size_t width = bytes / sizeof(T);
  const auto interleave = [](auto a, auto b, auto first, auto... i) __attribute__((always_inline)) {
    return __builtin_shufflevector(a, b, (first() + i() / 2 + i() % 2 * width)...);
  };
  const auto round = [&]<std::size_t... i>(std::index_sequence<i...>) __attribute__((always_inline)) {
    Vector<T, bytes> shuffled[width];
#pragma GCC unroll 16
    for (std::size_t r = 0; r < width / 2; ++r) {
      shuffled[2 * r] = interleave(rows[r], rows[r + width / 2], std::integral_constant<std::size_t, 0>(),
                                   std::integral_constant<std::size_t, i>()...);
      shuffled[2 * r + 1] = interleave(rows[r], rows[r + width / 2], std::integral_constant<std::size_t, width / 2>(),
                                       std::integral_constant<std::size_t, i>()...);
    }
#pragma GCC unroll 16
    for (std::size_t r = 0; r < width; ++r) rows[r] = shuffled[r];
  };
#pragma GCC unroll 4
  for (std::size_t distance = 1; distance < width; distance *= 2) round(std::make_index_sequence<width>());
}

}  // namespace
}  // namespace xtape::kernels
#endif
