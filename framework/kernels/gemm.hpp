#pragma once
// Matrix products on row-major memory.

#include <cstddef>

namespace xtape::kernels {

enum class Transpose { no, yes };

/// C (m, n) = alpha op(A) op(B) + beta C, where op(A) is (m, k), op(B) is (k, n) and every matrix has its own distance
/// from row to row. With beta = 0 C is not read, and every row starts from the bias (n,) if there is one. Runs on the
/// calling thread, with up to 530 KB of its stack.
///
/// With our own code every element is one chain of fused multiply-adds in the order of k, from what it starts from: its
/// bits depend on its row of A and its column of B alone, not on m, n or the processor. BLAS promises no such thing.
template <class T>
void gemm(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc,
          const T* bias = nullptr);

/// How C is cut for a product on all threads, into sizes that depend on m, n and k alone, so that the bits of the
/// result do not depend on the number of threads. Blocks are numbered row by row.
class GemmBlocks {
 public:
  struct Block {
    std::size_t row, rows, column, columns;  // the first of each, and how many
  };
  GemmBlocks(std::size_t m, std::size_t n, std::size_t k);
  std::size_t count() const { return down_ * across_; }
  Block operator[](std::size_t number) const;

 private:
  std::size_t m_, n_, rows_, columns_, down_, across_;
};

/// The product on all threads, block by block.
template <class T>
void parallel_gemm(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
                   const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc,
                   const T* bias = nullptr);

/// Whose code multiplies. Automatic is the last of them that the processor can run.
enum class GemmCode { automatic, blas, avx2, avx512 };
bool can_run(GemmCode code);
/// From now on, for every thread; for tests and measurements. The code must be one that can run.
void use_gemm_code(GemmCode code);

}  // namespace xtape::kernels
