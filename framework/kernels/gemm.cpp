#include <xtape/framework/kernels/gemm.hpp>

#include <xtensor-blas/xblas.hpp>

#include <algorithm>

#include <xtape/framework/base/parallel.hpp>

// Of OpenBLAS alone; absent from other BLAS libraries.
extern "C" {
[[gnu::weak]] void openblas_set_num_threads(int);
[[gnu::weak]] int openblas_get_parallel(void);
}

namespace xtape::kernels {
namespace {

/// Threads are ours: two pools of them would fight for the processors. In its OpenMP build OpenBLAS is serial inside
/// our parallel loops by itself, and openblas_set_num_threads would change OpenMP's own setting, so it is left alone
/// there.
void keep_blas_on_one_thread() {
  constexpr int built_with_pthreads = 1;
  static const bool done = [] {
    if (openblas_get_parallel && openblas_set_num_threads && openblas_get_parallel() == built_with_pthreads)
      openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

int blas_int(std::size_t n) { return static_cast<int>(std::max<std::size_t>(n, 1)); }

}  // namespace

template <class T>
void gemm(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) c[i * ldc + j] = beta == T(0) ? T(0) : beta * c[i * ldc + j];
    return;
  }
  keep_blas_on_one_thread();
  const auto flag = [](Transpose t) { return t == Transpose::yes ? cxxblas::Trans : cxxblas::NoTrans; };
  if (m == 1) {  // c = op(B)^T a: several times faster than a product with one row
    const bool transposed = transpose_b == Transpose::yes;
    if (beta == T(0)) std::fill_n(c, n, T(0));  // some versions of BLAS scale what stands there, were it NaN
    cxxblas::gemv<int>(cxxblas::RowMajor, transposed ? cxxblas::NoTrans : cxxblas::Trans, blas_int(transposed ? n : k),
                       blas_int(transposed ? k : n), alpha, b, blas_int(ldb), a,
                       transpose_a == Transpose::yes ? blas_int(lda) : 1, beta, c, 1);
    return;
  }
  cxxblas::gemm<int>(cxxblas::RowMajor, flag(transpose_a), flag(transpose_b), blas_int(m), blas_int(n), blas_int(k),
                     alpha, a, blas_int(lda), b, blas_int(ldb), beta, c, blas_int(ldc));
}

template <class T>
void parallel_gemm(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
                   const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc) {
  // A piece is worth its hand-over to another thread from about a million multiply-adds on; 16 pieces balance well.
  constexpr std::size_t work_per_piece = std::size_t{1} << 20, most_pieces = 16, granule = 16;
  if (m == 0 || n == 0) return;
  const bool cut_rows = m >= n;
  const std::size_t extent = cut_rows ? m : n;
  const std::size_t pieces = std::clamp<std::size_t>(m * n * k / work_per_piece, 1, most_pieces);
  const std::size_t chunk = (((extent + pieces - 1) / pieces + granule - 1) / granule) * granule;
  parallel_chunks(extent, chunk, [&](std::size_t begin, std::size_t end) {
    if (cut_rows)
      gemm(transpose_a, transpose_b, end - begin, n, k, alpha,
           transpose_a == Transpose::yes ? a + begin : a + begin * lda, lda, b, ldb, beta, c + begin * ldc, ldc);
    else
      gemm(transpose_a, transpose_b, m, end - begin, k, alpha, a, lda,
           transpose_b == Transpose::yes ? b + begin * ldb : b + begin, ldb, beta, c + begin, ldc);
  });
}

template void gemm(Transpose, Transpose, std::size_t, std::size_t, std::size_t, float, const float*, std::size_t,
                   const float*, std::size_t, float, float*, std::size_t);
template void gemm(Transpose, Transpose, std::size_t, std::size_t, std::size_t, double, const double*, std::size_t,
                   const double*, std::size_t, double, double*, std::size_t);
template void parallel_gemm(Transpose, Transpose, std::size_t, std::size_t, std::size_t, float, const float*,
                            std::size_t, const float*, std::size_t, float, float*, std::size_t);
template void parallel_gemm(Transpose, Transpose, std::size_t, std::size_t, std::size_t, double, const double*,
                            std::size_t, const double*, std::size_t, double, double*, std::size_t);

}  // namespace xtape::kernels
