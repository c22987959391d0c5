#pragma once
// BLAS as Fortran calls it: what every BLAS library has.

#include <cstddef>

extern "C" void sgemm_(const char* transpose_a, const char* transpose_b, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                       const float* beta, float* c, const int* ldc);

namespace xtape::benchmarks {

/// C (m, n) = op(A) op(B) on row-major memory without gaps, on the calling thread if BLAS was told to stay there.
inline void blas_gemm(bool transpose_a, bool transpose_b, std::size_t m, std::size_t n, std::size_t k, const float* a,
                      std::size_t lda, const float* b, std::size_t ldb, float* c, std::size_t ldc) {
  // Row-major is the transpose of column-major: C^T = op(B)^T op(A)^T.
  const auto as_int = [](std::size_t x) { return static_cast<int>(x); };
  const int rows = as_int(n), columns = as_int(m), inner = as_int(k),
            strides[] = {as_int(ldb), as_int(lda), as_int(ldc)};
  const float one = 1, zero = 0;
  sgemm_(transpose_b ? "T" : "N", transpose_a ? "T" : "N", &rows, &columns, &inner, &one, b, &strides[0], a,
         &strides[1], &zero, c, &strides[2]);
}

}  // namespace xtape::benchmarks
