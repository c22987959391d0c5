#include <xtape/framework/kernels/unary.hpp>

#include <numbers>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {
namespace {

constexpr std::size_t chunk = 8192;

struct Negate {
  template <class B>
  static B forward(B x) {
    return -x;
  }
  template <class B>
  static B backward(B, B, B dy) {
    return -dy;
  }
};
struct Exp {
  template <class B>
  static B forward(B x) {
    return xsimd::exp(x);
  }
  template <class B>
  static B backward(B, B y, B dy) {
    return dy * y;
  }
};
struct Log {
  template <class B>
  static B forward(B x) {
    return xsimd::log(x);
  }
  template <class B>
  static B backward(B x, B, B dy) {
    return dy / x;
  }
};
struct Tanh {
  template <class B>
  static B forward(B x) {
    return xsimd::tanh(x);
  }
  template <class B>
  static B backward(B, B y, B dy) {
    return dy * (B(1) - y * y);
  }
};
/// max(x, 0); NaN stays NaN. The derivative at 0 is 0.
struct Relu {
  template <class B>
  static B forward(B x) {
    return xsimd::select(x <= B(0), B(0), x);
  }
  template <class B>
  static B backward(B x, B, B dy) {
    return xsimd::select(x <= B(0), B(0), dy);
  }
};
/// x Phi(x), with Phi the distribution function of the normal distribution (Hendrycks and Gimpel 2016, section 2).
/// Derivative: Phi(x) + x phi(x).
struct Gelu {
  template <class B>
  static B phi_integral(B x) {
    return B(0.5) * (B(1) + xsimd::erf(x * B(std::numbers::sqrt2 / 2)));
  }
  template <class B>
  static B forward(B x) {
    return x * phi_integral(x);
  }
  template <class B>
  static B backward(B x, B, B dy) {
    const B density = xsimd::exp(B(-0.5) * x * x) * B(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return dy * (phi_integral(x) + x * density);
  }
};

template <class F>
void with_function(Unary f, F&& use) {
  switch (f) {
    case Unary::negate:
      return use(Negate{});
    case Unary::exp:
      return use(Exp{});
    case Unary::log:
      return use(Log{});
    case Unary::tanh:
      return use(Tanh{});
    case Unary::relu:
      return use(Relu{});
    case Unary::gelu:
      return use(Gelu{});
  }
}

template <bool accumulate, class Function, class T>
void backward_range(const T* x, const T* y, const T* dy, T* dx, std::size_t n) {
  sweep<T>(n, [&](std::size_t i, auto extent) {
    put<accumulate>(dx + i, Function::backward(load(x + i, extent), load(y + i, extent), load(dy + i, extent)), extent);
  });
}

}  // namespace

template <class T>
void unary_forward(Unary f, const T* x, T* y, std::size_t n) {
  with_function(f, [&](auto function) {
    parallel_chunks(n, chunk, [&](std::size_t begin, std::size_t end) {
      sweep<T>(end - begin, [&](std::size_t i, auto extent) {
        store(y + begin + i, decltype(function)::forward(load(x + begin + i, extent)), extent);
      });
    });
  });
}

template <class T>
void unary_backward(Unary f, const T* x, const T* y, const T* dy, T* dx, bool accumulate, std::size_t n) {
  with_function(f, [&](auto function) {
    using Function = decltype(function);
    parallel_chunks(n, chunk, [&](std::size_t begin, std::size_t end) {
      if (accumulate)
        backward_range<true, Function>(x + begin, y + begin, dy + begin, dx + begin, end - begin);
      else
        backward_range<false, Function>(x + begin, y + begin, dy + begin, dx + begin, end - begin);
    });
  });
}

template void unary_forward(Unary, const float*, float*, std::size_t);
template void unary_forward(Unary, const double*, double*, std::size_t);
template void unary_backward(Unary, const float*, const float*, const float*, float*, bool, std::size_t);
template void unary_backward(Unary, const double*, const double*, const double*, double*, bool, std::size_t);

}  // namespace xtape::kernels
