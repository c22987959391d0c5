#pragma once
// Elementwise functions of one number and their derivatives, on vectors; for kernel files only. B is a vector of float
// or double. NaN stays NaN. backward(x, y, dy) = dy f'(x), where y = f(x).

#include <numbers>

#include <xtape/framework/kernels/normal.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {

struct Negate {
  template <class B>
  B forward(B x) const {
    return -x;
  }
  template <class B>
  B backward(B, B, B dy) const {
    return -dy;
  }
};
struct Exp {
  template <class B>
  B forward(B x) const {
    return xsimd::exp(x);
  }
  template <class B>
  B backward(B, B y, B dy) const {
    return dy * y;
  }
};
struct Log {
  template <class B>
  B forward(B x) const {
    return xsimd::log(x);
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return dy / x;
  }
};
struct Log1p {
  template <class B>
  B forward(B x) const {
    return xsimd::log1p(x);
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return dy / (B(1) + x);
  }
};
struct Sqrt {
  template <class B>
  B forward(B x) const {
    return xsimd::sqrt(x);
  }
  template <class B>
  B backward(B, B y, B dy) const {
    return B(0.5) * dy / y;
  }
};
struct Rsqrt {
  template <class B>
  B forward(B x) const {
    return B(1) / xsimd::sqrt(x);
  }
  template <class B>
  B backward(B x, B y, B dy) const {
    return B(-0.5) * dy * y / x;
  }
};
struct Square {
  template <class B>
  B forward(B x) const {
    return x * x;
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return B(2) * x * dy;
  }
};
/// The derivative at 0 is 0.
struct Abs {
  template <class B>
  B forward(B x) const {
    return xsimd::abs(x);
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return xsimd::select(x == B(0), B(0), xsimd::select(x < B(0), -dy, dy));
  }
};
struct Sin {
  template <class B>
  B forward(B x) const {
    return xsimd::sin(x);
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return dy * xsimd::cos(x);
  }
};
struct Cos {
  template <class B>
  B forward(B x) const {
    return xsimd::cos(x);
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return -dy * xsimd::sin(x);
  }
};
struct Tanh {
  template <class B>
  B forward(B x) const {
    return xsimd::tanh(x);
  }
  template <class B>
  B backward(B, B y, B dy) const {
    return dy * (B(1) - y * y);
  }
};

/// 1 / (1 + exp(-x)), from exp(-|x|), which cannot overflow.
template <class B>
B sigmoid_of(B x) {
  const B e = xsimd::exp(-xsimd::abs(x));
  return xsimd::select(x < B(0), e, B(1)) / (B(1) + e);
}
struct Sigmoid {
  template <class B>
  B forward(B x) const {
    return sigmoid_of(x);
  }
  /// exp(-|x|) / (1 + exp(-|x|))^2: y (1 - y) cancels where y is near 1.
  template <class B>
  B backward(B x, B, B dy) const {
    const B e = xsimd::exp(-xsimd::abs(x)), one_plus = B(1) + e;
    return dy * e / (one_plus * one_plus);
  }
};
struct Silu {
  template <class B>
  B forward(B x) const {
    return x * sigmoid_of(x);
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return dy * slope(x);
  }
  template <class B>
  static B slope(B x) {
    const B s = sigmoid_of(x);
    return s * (B(1) + x * (B(1) - s));
  }
};
/// log(1 + exp(x)), from exp(-|x|).
template <class B>
B softplus_of(B x) {
  return xsimd::select(x < B(0), B(0), x) + xsimd::log1p(xsimd::exp(-xsimd::abs(x)));
}
struct Softplus {
  template <class B>
  B forward(B x) const {
    return softplus_of(x);
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return dy * sigmoid_of(x);
  }
};
/// max(x, 0). The derivative at 0 is 0.
struct Relu {
  template <class B>
  B forward(B x) const {
    return xsimd::select(x <= B(0), B(0), x);
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return xsimd::select(x <= B(0), B(0), dy);
  }
};
/// f(x) and f'(x), for functions where both share most of their work.
template <class B>
struct ValueAndSlope {
  B value, slope;
};
/// x Phi(x), with Phi the distribution function of the normal distribution (Hendrycks and Gimpel 2016, section 2).
/// Derivative: Phi(x) + x phi(x).
struct Gelu {
  template <class B>
  static ValueAndSlope<B> value_and_slope(B x) {
    const auto [distribution, density] = normal_of(x);
    // Beyond 50 the density is 0, and an infinite x must not meet it.
    const B bounded = xsimd::min(B(50), xsimd::max(B(-50), x));
    return {x * distribution, distribution + bounded * density};
  }
  template <class B>
  B forward(B x) const {
    return value_and_slope(x).value;
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return dy * value_and_slope(x).slope;
  }
};
/// x (1 + tanh(u)) / 2 = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3) (the same, section 2).
/// Derivative: s + x s (1 - s) 2 u', where s = sigmoid(2 u).
struct GeluTanh {
  template <class B>
  static ValueAndSlope<B> value_and_slope(B x) {
    const B c(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
    const B twice_u = c * (x + B(0.044715) * x * x * x);
    const B e = xsimd::exp(-xsimd::abs(twice_u)), one_plus = B(1) + e;
    const B s = xsimd::select(x < B(0), e, B(1)) / one_plus;
    // Beyond 50 s is 0 or 1 to the last bit, and x^2 must not overflow against s (1 - s) = 0.
    const B bounded = xsimd::min(B(50), xsimd::max(B(-50), x));
    const B twice_slope_of_u = c * (B(1) + B(3 * 0.044715) * bounded * bounded);
    return {x * s, s + bounded * twice_slope_of_u * (e / (one_plus * one_plus))};
  }
  template <class B>
  B forward(B x) const {
    return value_and_slope(x).value;
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return dy * value_and_slope(x).slope;
  }
};
/// x, but at least low and at most high. The derivative is 1 from low to high, both included.
struct Clamp {
  double low, high;
  template <class B>
  B forward(B x) const {
    const B below = number<B>(low), above = number<B>(high);
    return xsimd::select(x < below, below, xsimd::select(x > above, above, x));
  }
  template <class B>
  B backward(B x, B, B dy) const {
    return xsimd::select(x < number<B>(low) || x > number<B>(high), B(0), dy);
  }
  template <class B>
  static B number(double x) {
    return B(static_cast<typename B::value_type>(x));
  }
};

}  // namespace xtape::kernels
