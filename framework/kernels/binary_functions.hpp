#pragma once
// Elementwise functions of two numbers and their derivatives, on vectors; for kernel files only. left(a, b, dy) = dy
// times the derivative by a, right the same by b.

#include <limits>

#include <xtape/framework/kernels/unary_functions.hpp>

namespace xtape::kernels {

struct Add {
  template <class B>
  static B forward(B a, B b) {
    return a + b;
  }
  template <class B>
  static B left(B, B, B dy) {
    return dy;
  }
  template <class B>
  static B right(B, B, B dy) {
    return dy;
  }
};
struct Subtract {
  template <class B>
  static B forward(B a, B b) {
    return a - b;
  }
  template <class B>
  static B left(B, B, B dy) {
    return dy;
  }
  template <class B>
  static B right(B, B, B dy) {
    return -dy;
  }
};
struct Multiply {
  template <class B>
  static B forward(B a, B b) {
    return a * b;
  }
  template <class B>
  static B left(B, B b, B dy) {
    return dy * b;
  }
  template <class B>
  static B right(B a, B, B dy) {
    return dy * a;
  }
};
struct Divide {
  template <class B>
  static B forward(B a, B b) {
    return a / b;
  }
  template <class B>
  static B left(B, B b, B dy) {
    return dy / b;
  }
  template <class B>
  static B right(B a, B b, B dy) {
    return -dy * (a / b) / b;
  }
};
/// a^b. By a: b a^(b - 1). By b: a^b log a, and 0 where a is 0.
struct Power {
  /// xsimd's pow gives 0 for any power of 0.
  template <class B>
  static B forward(B a, B b) {
    constexpr auto infinity = std::numeric_limits<typename B::value_type>::infinity();
    const B of_zero = xsimd::select(b == B(0), B(1), xsimd::select(b < B(0), B(infinity), B(0)));
    return xsimd::select(a == B(0), of_zero, xsimd::pow(a, b));
  }
  template <class B>
  static B left(B a, B b, B dy) {
    return xsimd::select(b == B(0), B(0), dy * b * forward(a, b - B(1)));
  }
  template <class B>
  static B right(B a, B b, B dy) {
    return xsimd::select(a == B(0), B(0), dy * forward(a, b) * xsimd::log(a));
  }
};
/// The larger one; NaN if either is. Where both are equal each gets half of the gradient.
struct Maximum {
  template <class B>
  static B forward(B a, B b) {
    return xsimd::select(a > b || xsimd::isnan(a), a, b);
  }
  template <class B>
  static B left(B a, B b, B dy) {
    return xsimd::select(a > b, dy, xsimd::select(a == b, B(0.5) * dy, B(0)));
  }
  template <class B>
  static B right(B a, B b, B dy) {
    return left(b, a, dy);
  }
};
struct Minimum {
  template <class B>
  static B forward(B a, B b) {
    return xsimd::select(a < b || xsimd::isnan(a), a, b);
  }
  template <class B>
  static B left(B a, B b, B dy) {
    return Maximum::left(b, a, dy);
  }
  template <class B>
  static B right(B a, B b, B dy) {
    return Maximum::left(a, b, dy);
  }
};
/// silu(gate) up (Shazeer 2020, section 2).
struct Swiglu {
  template <class B>
  static B forward(B gate, B up) {
    return Silu{}.forward(gate) * up;
  }
  template <class B>
  static B left(B gate, B up, B dy) {
    return dy * up * Silu::slope(gate);
  }
  template <class B>
  static B right(B gate, B, B dy) {
    return dy * Silu{}.forward(gate);
  }
};
/// (x - target)^2
struct SquaredError {
  template <class B>
  static B forward(B x, B target) {
    return (x - target) * (x - target);
  }
  template <class B>
  static B left(B x, B target, B dy) {
    return B(2) * dy * (x - target);
  }
  template <class B>
  static B right(B x, B target, B dy) {
    return left(target, x, dy);
  }
};
/// |x - target|
struct AbsoluteError {
  template <class B>
  static B forward(B x, B target) {
    return xsimd::abs(x - target);
  }
  template <class B>
  static B left(B x, B target, B dy) {
    return Abs{}.backward(x - target, B(0), dy);
  }
  template <class B>
  static B right(B x, B target, B dy) {
    return left(target, x, dy);
  }
};
/// -(target log sigmoid(x) + (1 - target) log(1 - sigmoid(x))) = softplus(x) - x target
struct BceWithLogits {
  template <class B>
  static B forward(B x, B target) {
    return softplus_of(x) - x * target;
  }
  template <class B>
  static B left(B x, B target, B dy) {
    return dy * (sigmoid_of(x) - target);
  }
  template <class B>
  static B right(B x, B, B dy) {
    return -dy * x;
  }
};
/// target (log target - x), where x holds log-probabilities; 0 where the target is 0.
struct KlDivergence {
  template <class B>
  static B forward(B x, B target) {
    return xsimd::select(target == B(0), B(0), target * (xsimd::log(target) - x));
  }
  template <class B>
  static B left(B, B target, B dy) {
    return -dy * target;
  }
  template <class B>
  static B right(B x, B target, B dy) {
    return xsimd::select(target == B(0), B(0), dy * (xsimd::log(target) - x + B(1)));
  }
};

}  // namespace xtape::kernels
