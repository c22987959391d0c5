#include <xtape/framework/kernels/gemm.hpp>

#include <algorithm>
#include <atomic>
#include <bit>

#include <xtape/framework/base/error.hpp>
#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/gemm_product.hpp>

namespace xtape::kernels {
namespace {

template <class T>
using Code = void (*)(const Product<T>&);

template <class T>
constexpr Code<T> code_of(GemmCode code) {
#ifdef XTAPE_X86_GEMM
  if (code == GemmCode::avx2) return multiply_avx2;
  if (code == GemmCode::avx512) return multiply_avx512;
#endif
  return code == GemmCode::blas ? Code<T>(multiply_blas) : nullptr;
}

GemmCode best_code() {
  for (GemmCode code : {GemmCode::avx512, GemmCode::avx2})
    if (can_run(code)) return code;
  return GemmCode::blas;
}

constinit std::atomic<GemmCode> chosen_code{GemmCode::automatic};  // also for products before main

/// C = beta C, or the bias in every row, or 0.
template <class T>
void start(std::size_t m, std::size_t n, T beta, T* c, std::size_t ldc, const T* bias) {
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j)
      c[i * ldc + j] = beta != T(0) ? beta * c[i * ldc + j] : bias != nullptr ? bias[j] : T(0);
}

}  // namespace

bool can_run(GemmCode code) {
#ifdef XTAPE_X86_GEMM
  if (code == GemmCode::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (code == GemmCode::avx512) return can_run(GemmCode::avx2) && __builtin_cpu_supports("avx512f");
#endif
  return code == GemmCode::automatic || code == GemmCode::blas;
}

void use_gemm_code(GemmCode code) {
  require(can_run(code), "[use_gemm_code] this processor cannot run the code that was asked for");
  chosen_code = code;
}

template <class T>
void gemm(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc, const T* bias) {
  if (m == 0 || n == 0) return;
  const bool clears = beta == T(0), adds = !clears && k > 0;
  if (k == 0 || (!clears && beta != T(1))) start(m, n, beta, c, ldc, bias);
  if (k == 0) return;
  const GemmCode code = chosen_code.load(std::memory_order_relaxed);
  code_of<T>(code == GemmCode::automatic ? best_code() : code)(
      {transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, c, ldc, adds, clears ? bias : nullptr});
}

GemmBlocks::GemmBlocks(std::size_t m, std::size_t n, std::size_t k) : m_(m), n_(n), rows_(m), columns_(n) {
  // A block packs its own part of A and B, which is least work if it is about as wide as high, and pays from about two
  // million multiply-adds on, where reading B costs as much as 16 rows; one of half as many pays its hand-over to
  // another thread. Eight blocks balance well; many processors want more.
  constexpr std::size_t work_per_block = std::size_t{1} << 21, most_work_per_block = std::size_t{1} << 27;
  constexpr std::size_t granule = 32;
  const std::size_t work = (m + 16) * n * k, least_blocks = work >= work_per_block ? 2 : 1;
  const std::size_t most_blocks = std::max<std::size_t>(8, work / most_work_per_block);
  const std::size_t blocks = std::bit_floor(std::clamp(work / work_per_block, least_blocks, most_blocks));
  for (std::size_t cut = 1; cut < blocks; cut *= 2) {
    std::size_t& longer = rows_ >= columns_ ? rows_ : columns_;
    longer = ((longer + 1) / 2 + granule - 1) / granule * granule;
  }
  down_ = m == 0 ? 0 : (m + rows_ - 1) / rows_;
  across_ = n == 0 ? 0 : (n + columns_ - 1) / columns_;
}

GemmBlocks::Block GemmBlocks::operator[](std::size_t number) const {
  const std::size_t row = number / across_ * rows_, column = number % across_ * columns_;
  return {row, std::min(rows_, m_ - row), column, std::min(columns_, n_ - column)};
}

template <class T>
void parallel_gemm(Transpose transpose_a, Transpose transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
                   const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc,
                   const T* bias) {
  const GemmBlocks blocks(m, n, k);
  parallel_for(blocks.count(), [&](std::size_t number, std::size_t) {
    const auto [i, rows, j, columns] = blocks[number];
    gemm(transpose_a, transpose_b, rows, columns, k, alpha, transpose_a == Transpose::yes ? a + i : a + i * lda, lda,
         transpose_b == Transpose::yes ? b + j * ldb : b + j, ldb, beta, c + i * ldc + j, ldc,
         bias == nullptr ? nullptr : bias + j);
  });
}

template void gemm(Transpose, Transpose, std::size_t, std::size_t, std::size_t, float, const float*, std::size_t,
                   const float*, std::size_t, float, float*, std::size_t, const float*);
template void gemm(Transpose, Transpose, std::size_t, std::size_t, std::size_t, double, const double*, std::size_t,
                   const double*, std::size_t, double, double*, std::size_t, const double*);
template void parallel_gemm(Transpose, Transpose, std::size_t, std::size_t, std::size_t, float, const float*,
                            std::size_t, const float*, std::size_t, float, float*, std::size_t, const float*);
template void parallel_gemm(Transpose, Transpose, std::size_t, std::size_t, std::size_t, double, const double*,
                            std::size_t, const double*, std::size_t, double, double*, std::size_t, const double*);

}  // namespace xtape::kernels
