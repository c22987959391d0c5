#pragma once
// The normal distribution on vectors; for kernel files only.

#include <numbers>

#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {

/// Phi(x), and phi(x) = exp(-x^2 / 2) / sqrt(2 pi).
template <class B>
struct Normal {
  B distribution, density;
};

inline Normal<Batch<double>> normal_of(Batch<double> x) {
  using B = Batch<double>;
  return {B(0.5) * (B(1) + xsimd::erf(x * B(std::numbers::sqrt2 / 2))),
          xsimd::exp(B(-0.5) * x * x) * B(std::numbers::inv_sqrtpi / std::numbers::sqrt2)};
}

/// c0 + c1 x + c2 x^2 + ..., by Horner's rule.
inline Batch<float> polynomial(Batch<float>, float c0) { return Batch<float>(c0); }
template <class... More>
Batch<float> polynomial(Batch<float> x, float c0, More... more) {
  return xsimd::fma(polynomial(x, more...), x, Batch<float>(c0));
}

/// Both from one exponential and without a branch. With t = |x| the tail beyond t is exp(-t^2 / 2) p(v) / (t + 4),
/// where v = (t - 4) / (t + 4) lies between -1 and 1, and p interpolates at Chebyshev's nodes with an error of 1.2e-7.
/// Error: 6 ulp of Phi, on both sides of 0, and 3 ulp of phi, until they underflow at x = -13; Phi(0) is exact.
inline Normal<Batch<float>> normal_of(Batch<float> x) {
  using B = Batch<float>;
  // Beyond 14 the tail is 0. A NaN passes, as the second operand.
  const B t = xsimd::min(B(14), xsimd::abs(x)), square = t * t;
  // t^2 - square, which counts where the power is small. The upper part of t has 12 bits, so that its square is exact.
  const B upper = (t + B(0x1.8p15f)) - B(0x1.8p15f), lost = (upper * upper - square) + (t - upper) * (t + upper);
  const B power = xsimd::exp(B(-0.5f) * square), e = xsimd::fnma(power, B(0.5f) * lost, power);
  const B inverse = B(1) / (t + B(4)), v = (t - B(4)) * inverse;
  const B p = polynomial(v, 0.7552851582f, -0.6078971987f, 0.3871350546f, -0.1865098046f, 0.06043260423f,
                         -0.007595896317f, -0.003668972125f, 0.001636536052f, 0.0004497614995f);
  const B tail = e * inverse * p;
  return {xsimd::select(x < B(0), tail, B(1) - tail),
          e * B(static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2))};
}

}  // namespace xtape::kernels
