#include <xtape/framework/kernels/unary.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {
namespace {

template <class T>
Var<T> unary(const char* name, kernels::Unary f, Var<T> x) {
  Tape<T>& tape = tape_of(name, x);
  Var<T> y = tape.output(name, x.shape(), x);
  kernels::unary_forward(f, x.data(), y.data(), y.size());
  tape.on_backward(y, [=] {
    const auto [dx, accumulate] = x.tape().slot(x);
    kernels::unary_backward(f, x.data(), y.data(), y.tape().slot(y).data, dx, accumulate, y.size());
  });
  return y;
}

}  // namespace

template <class T>
Var<T> operator-(Var<T> x) {
  return unary("negate", kernels::Unary::negate, x);
}
template <class T>
Var<T> exp(Var<T> x) {
  return unary("exp", kernels::Unary::exp, x);
}
template <class T>
Var<T> log(Var<T> x) {
  return unary("log", kernels::Unary::log, x);
}
template <class T>
Var<T> tanh(Var<T> x) {
  return unary("tanh", kernels::Unary::tanh, x);
}
template <class T>
Var<T> relu(Var<T> x) {
  return unary("relu", kernels::Unary::relu, x);
}
template <class T>
Var<T> gelu(Var<T> x) {
  return unary("gelu", kernels::Unary::gelu, x);
}

template Var<float> operator-(Var<float>);
template Var<double> operator-(Var<double>);
template Var<float> exp(Var<float>);
template Var<double> exp(Var<double>);
template Var<float> log(Var<float>);
template Var<double> log(Var<double>);
template Var<float> tanh(Var<float>);
template Var<double> tanh(Var<double>);
template Var<float> relu(Var<float>);
template Var<double> relu(Var<double>);
template Var<float> gelu(Var<float>);
template Var<double> gelu(Var<double>);

}  // namespace xtape
