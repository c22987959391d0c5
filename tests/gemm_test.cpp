#include <xtape/framework/kernels/gemm.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "support.hpp"

namespace xtape::gemm_test {
namespace {

using kernels::GemmCode;
using kernels::Transpose;

/// While it lives, products are computed by the given code.
struct With {
  explicit With(GemmCode code) { kernels::use_gemm_code(code); }
  ~With() { kernels::use_gemm_code(GemmCode::automatic); }
};

template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
}

/// A matrix product whose matrices have unused columns beside them.
template <class T>
struct Case {
  Transpose transpose_a, transpose_b;
  std::size_t m, n, k;
  T alpha, beta;
  bool has_bias;
  std::size_t lda, ldb, ldc;
  std::vector<T> a, b, c, bias;

  Case(Transpose ta, Transpose tb, std::size_t rows, std::size_t columns, std::size_t depth, T alpha_, T beta_,
       bool has_bias_)
      : transpose_a(ta),
        transpose_b(tb),
        m(rows),
        n(columns),
        k(depth),
        alpha(alpha_),
        beta(beta_),
        has_bias(has_bias_),
        lda((ta == Transpose::yes ? m : k) + 3),
        ldb((tb == Transpose::yes ? k : n) + 1),
        ldc(n + 2) {
    Rng rng(m * 1000003 + n * 1009 + k);
    const auto filled = [&](std::size_t size) {
      std::vector<T> x(size);
      for (T& value : x) value = static_cast<T>(rng.normal());
      return x;
    };
    a = filled(lda * (ta == Transpose::yes ? k : m)), b = filled(ldb * (tb == Transpose::yes ? n : k));
    c = filled(ldc * m), bias = filled(n);
    if (beta == T(0))
      for (std::size_t i = 0; i < m; ++i) std::fill_n(c.begin() + i * ldc, n, std::numeric_limits<T>::quiet_NaN());
  }

  /// One chain of fused multiply-adds for each element.
  std::vector<T> expected() const {
    std::vector<T> y = c;
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        T& sum = y[i * ldc + j];
        sum = beta != T(0) ? beta * sum : has_bias ? bias[j] : T(0);
        for (std::size_t p = 0; p < k; ++p)
          sum = std::fma(alpha * (transpose_a == Transpose::yes ? a[p * lda + i] : a[i * lda + p]),
                         transpose_b == Transpose::yes ? b[j * ldb + p] : b[p * ldb + j], sum);
      }
    return y;
  }
  std::vector<T> computed(bool parallel) const {
    std::vector<T> y = c;
    (parallel ? kernels::parallel_gemm<T> : kernels::gemm<T>)(transpose_a, transpose_b, m, n, k, alpha, a.data(), lda,
                                                              b.data(), ldb, beta, y.data(), ldc,
                                                              has_bias ? bias.data() : nullptr);
    return y;
  }
  std::string text() const {
    return fmt::format("m {} n {} k {} transposed {}{} alpha {} beta {} bias {}", m, n, k,
                       transpose_a == Transpose::yes ? "a" : "", transpose_b == Transpose::yes ? "b" : "", alpha, beta,
                       has_bias);
  }
};

template <class T, class F>
void for_each_case(F f) {
  // Around the borders of tiles and blocks: 14 and 6 rows; 4, 8, 16 and 32 columns; 256 columns; a depth of 128 and
  // 256.
  const std::size_t shapes[][3] = {{0, 3, 2},     {3, 0, 2},    {3, 2, 0},    {1, 1, 1},   {1, 33, 7},
                                   {2, 5, 3},     {3, 16, 4},   {5, 17, 5},   {6, 8, 8},   {7, 31, 9},
                                   {13, 15, 16},  {14, 32, 17}, {15, 47, 3},  {28, 64, 4}, {29, 65, 33},
                                   {64, 24, 130}, {70, 9, 257}, {3, 300, 20}, {65, 513, 2}};
  for (const auto& [m, n, k] : shapes)
    for (Transpose ta : {Transpose::no, Transpose::yes})
      for (Transpose tb : {Transpose::no, Transpose::yes}) {
        f(Case<T>(ta, tb, m, n, k, T(1), T(0), false));
        f(Case<T>(ta, tb, m, n, k, T(1), T(1), false));
        f(Case<T>(ta, tb, m, n, k, T(1), T(0), true));
        f(Case<T>(ta, tb, m, n, k, T(0.5), T(-0.75), false));
      }
}

template <class T>
class Gemm : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Gemm, Types);

TYPED_TEST(Gemm, OwnCodeIsOneChainForEachElementToTheLastBit) {
  for (GemmCode code : {GemmCode::avx2, GemmCode::avx512}) {
    if (!kernels::can_run(code)) continue;
    const With with(code);
    for_each_case<TypeParam>([&](const Case<TypeParam>& c) {
      const auto expected = c.expected();
      for (bool parallel : {false, true}) ASSERT_TRUE(same_bits(c.computed(parallel), expected)) << c.text();
    });
  }
}
TYPED_TEST(Gemm, BlasAgreesToRounding) {
  const With with(GemmCode::blas);
  for_each_case<TypeParam>([&](const Case<TypeParam>& c) {
    const auto expected = c.expected(), computed = c.computed(true);
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(computed[i], expected[i],
                  tolerance::two_paths<TypeParam> * std::max(1.0, std::sqrt(static_cast<double>(c.k))))
          << c.text();
  });
}
TYPED_TEST(Gemm, ALargeProductHasTheSameBitsOnAnyNumberOfThreads) {
  const Case<TypeParam> c(Transpose::no, Transpose::yes, 300, 200, 100, TypeParam(1), TypeParam(0), false);
  const int before = threads();
  const auto expected = c.computed(false);
  for (int n : {1, 2, 3}) {
    set_threads(n);
    EXPECT_TRUE(same_bits(c.computed(true), expected)) << n;
  }
  set_threads(before);
}
TYPED_TEST(Gemm, ALongProductOfTwoVectorsIsNotCutAway) {
  const Case<TypeParam> c(Transpose::no, Transpose::yes, 1, 1, 300'000, TypeParam(1), TypeParam(0), false);
  EXPECT_TRUE(same_bits(c.computed(true), c.computed(false)));
}
TYPED_TEST(Gemm, NegativeZeroIsKept) {
  const TypeParam a = TypeParam(-0.0), b = 1, bias = TypeParam(-0.0);
  for (std::size_t m : {std::size_t{1}, std::size_t{2}}) {
    const std::vector<TypeParam> rows(m, a);
    std::vector<TypeParam> c(m, 1);
    kernels::gemm(Transpose::no, Transpose::yes, m, 1, 1, TypeParam(1), rows.data(), 1, &b, 1, TypeParam(0), c.data(),
                  1, &bias);
    EXPECT_TRUE(std::signbit(c[m - 1])) << m;
  }
}
TEST(GemmCode, WhatCannotRunIsRefused) {
  EXPECT_TRUE(kernels::can_run(GemmCode::blas));
  for (GemmCode code : {GemmCode::avx2, GemmCode::avx512})
    if (!kernels::can_run(code)) {
      EXPECT_THROW(kernels::use_gemm_code(code), Error);
    }
}

}  // namespace
}  // namespace xtape::gemm_test
