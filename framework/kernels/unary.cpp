#include <xtape/framework/kernels/unary.hpp>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/unary_functions.hpp>

namespace xtape::kernels {
namespace {

constexpr std::size_t chunk = 8192;

template <class F>
void with_function(UnaryFunction f, F&& use) {
  switch (f.kind) {
    case Unary::negate:
      return use(Negate{});
    case Unary::exp:
      return use(Exp{});
    case Unary::log:
      return use(Log{});
    case Unary::log1p:
      return use(Log1p{});
    case Unary::sqrt:
      return use(Sqrt{});
    case Unary::rsqrt:
      return use(Rsqrt{});
    case Unary::square:
      return use(Square{});
    case Unary::abs:
      return use(Abs{});
    case Unary::sin:
      return use(Sin{});
    case Unary::cos:
      return use(Cos{});
    case Unary::tanh:
      return use(Tanh{});
    case Unary::sigmoid:
      return use(Sigmoid{});
    case Unary::silu:
      return use(Silu{});
    case Unary::softplus:
      return use(Softplus{});
    case Unary::relu:
      return use(Relu{});
    case Unary::gelu:
      return use(Gelu{});
    case Unary::gelu_tanh:
      return use(GeluTanh{});
    case Unary::clamp:
      return use(Clamp{f.low, f.high});
  }
}

}  // namespace

template <class T>
void unary_forward(UnaryFunction f, const T* x, T* y, std::size_t n) {
  with_function(f, [&](auto function) {
    parallel_chunks(n, chunk, [&](std::size_t begin, std::size_t end) {
      sweep<T>(end - begin, [&](std::size_t i, auto extent) {
        store(y + begin + i, function.forward(load(x + begin + i, extent)), extent);
      });
    });
  });
}

template <class T>
void unary_backward(UnaryFunction f, const T* x, const T* y, const T* dy, T* dx, bool accumulate, std::size_t n) {
  with_function(f, [&](auto function) {
    parallel_chunks(n, chunk, [&](std::size_t begin, std::size_t end) {
      sweep<T>(end - begin, [&](std::size_t at, auto extent) {
        const std::size_t i = begin + at;
        put(accumulate, dx + i, function.backward(load(x + i, extent), load(y + i, extent), load(dy + i, extent)),
            extent);
      });
    });
  });
}

template void unary_forward(UnaryFunction, const float*, float*, std::size_t);
template void unary_forward(UnaryFunction, const double*, double*, std::size_t);
template void unary_backward(UnaryFunction, const float*, const float*, const float*, float*, bool, std::size_t);
template void unary_backward(UnaryFunction, const double*, const double*, const double*, double*, bool, std::size_t);

}  // namespace xtape::kernels
