#pragma once
// What a matrix product is, for the files that compute one.

#include <xtape/framework/kernels/gemm.hpp>

namespace xtape::kernels {

/// C (m, n) = start + alpha op(A) op(B), where start is C itself if `add`, else the bias (n,) for every row, if there
/// is one, else 0. k is not 0.
template <class T>
struct Product {
  Transpose transpose_a, transpose_b;
  std::size_t m, n, k;
  T alpha;
  const T* a;
  std::size_t lda;
  const T* b;
  std::size_t ldb;
  T* c;
  std::size_t ldc;
  bool add;
  const T* bias;
};

void multiply_blas(const Product<float>& product);
void multiply_blas(const Product<double>& product);
void multiply_avx2(const Product<float>& product);
void multiply_avx2(const Product<double>& product);
void multiply_avx512(const Product<float>& product);
void multiply_avx512(const Product<double>& product);

}  // namespace xtape::kernels
