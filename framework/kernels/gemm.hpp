#pragma once
// Matrix products on row-major memory, by BLAS.

#include <cstddef>

namespace xtape::kernels {

enum class Transpose { no, yes };

/// C (m, n) = alpha op(A) op(B) + beta C, where op(A) is (m, k), op(B) is (k, n) and every matrix has its own distance
/// from row to row. With beta = 0 C is not read. Runs on the calling thread.
template <class T>
void gemm(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc);

/// The same on all threads. C is cut into pieces whose sizes depend on m, n and k alone, so the bits of the result do
/// not depend on the number of threads.
template <class T>
void parallel_gemm(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
                   const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc);

}  // namespace xtape::kernels
