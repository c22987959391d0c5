// For processors that we have no code for.

#include <xtensor-blas/xblas.hpp>

#include <algorithm>

#include <xtape/framework/kernels/gemm_product.hpp>

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

template <class T>
void multiply(const Product<T>& p) {
  keep_blas_on_one_thread();
  if (p.bias != nullptr)
    for (std::size_t i = 0; i < p.m; ++i) std::copy_n(p.bias, p.n, p.c + i * p.ldc);
  const T beta = p.add || p.bias != nullptr ? T(1) : T(0);
  const auto flag = [](Transpose t) { return t == Transpose::yes ? cxxblas::Trans : cxxblas::NoTrans; };
  if (p.m == 1) {  // c = op(B)^T a: several times faster than a product with one row
    const bool transposed = p.transpose_b == Transpose::yes;
    if (beta == T(0)) std::fill_n(p.c, p.n, T(0));  // some versions of BLAS scale what stands there, were it NaN
    cxxblas::gemv<int>(cxxblas::RowMajor, transposed ? cxxblas::NoTrans : cxxblas::Trans,
                       blas_int(transposed ? p.n : p.k), blas_int(transposed ? p.k : p.n), p.alpha, p.b,
                       blas_int(p.ldb), p.a, p.transpose_a == Transpose::yes ? blas_int(p.lda) : 1, beta, p.c, 1);
    return;
  }
  cxxblas::gemm<int>(cxxblas::RowMajor, flag(p.transpose_a), flag(p.transpose_b), blas_int(p.m), blas_int(p.n),
                     blas_int(p.k), p.alpha, p.a, blas_int(p.lda), p.b, blas_int(p.ldb), beta, p.c, blas_int(p.ldc));
}

}  // namespace

void multiply_blas(const Product<float>& product) { multiply(product); }
void multiply_blas(const Product<double>& product) { multiply(product); }

}  // namespace xtape::kernels
