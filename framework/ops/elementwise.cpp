#include <xtape/framework/kernels/unary.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {
namespace {

template <class T>
Var<T> unary(const char* name, kernels::UnaryFunction f, Var<T> x) {
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
  return unary("negate", {kernels::Unary::negate}, x);
}
template <class T>
Var<T> exp(Var<T> x) {
  return unary("exp", {kernels::Unary::exp}, x);
}
template <class T>
Var<T> log(Var<T> x) {
  return unary("log", {kernels::Unary::log}, x);
}
template <class T>
Var<T> log1p(Var<T> x) {
  return unary("log1p", {kernels::Unary::log1p}, x);
}
template <class T>
Var<T> sqrt(Var<T> x) {
  return unary("sqrt", {kernels::Unary::sqrt}, x);
}
template <class T>
Var<T> rsqrt(Var<T> x) {
  return unary("rsqrt", {kernels::Unary::rsqrt}, x);
}
template <class T>
Var<T> square(Var<T> x) {
  return unary("square", {kernels::Unary::square}, x);
}
template <class T>
Var<T> abs(Var<T> x) {
  return unary("abs", {kernels::Unary::abs}, x);
}
template <class T>
Var<T> sin(Var<T> x) {
  return unary("sin", {kernels::Unary::sin}, x);
}
template <class T>
Var<T> cos(Var<T> x) {
  return unary("cos", {kernels::Unary::cos}, x);
}
template <class T>
Var<T> tanh(Var<T> x) {
  return unary("tanh", {kernels::Unary::tanh}, x);
}
template <class T>
Var<T> sigmoid(Var<T> x) {
  return unary("sigmoid", {kernels::Unary::sigmoid}, x);
}
template <class T>
Var<T> silu(Var<T> x) {
  return unary("silu", {kernels::Unary::silu}, x);
}
template <class T>
Var<T> softplus(Var<T> x) {
  return unary("softplus", {kernels::Unary::softplus}, x);
}
template <class T>
Var<T> relu(Var<T> x) {
  return unary("relu", {kernels::Unary::relu}, x);
}
template <class T>
Var<T> gelu(Var<T> x) {
  return unary("gelu", {kernels::Unary::gelu}, x);
}
template <class T>
Var<T> gelu_tanh(Var<T> x) {
  return unary("gelu_tanh", {kernels::Unary::gelu_tanh}, x);
}
template <class T>
Var<T> clamp(Var<T> x, double low, double high) {
  require(low <= high, "[clamp] low must not be above high, got {} and {}", low, high);
  return unary("clamp", {kernels::Unary::clamp, low, high}, x);
}

template Var<float> operator-(Var<float>);
template Var<double> operator-(Var<double>);
template Var<float> exp(Var<float>);
template Var<double> exp(Var<double>);
template Var<float> log(Var<float>);
template Var<double> log(Var<double>);
template Var<float> log1p(Var<float>);
template Var<double> log1p(Var<double>);
template Var<float> sqrt(Var<float>);
template Var<double> sqrt(Var<double>);
template Var<float> rsqrt(Var<float>);
template Var<double> rsqrt(Var<double>);
template Var<float> square(Var<float>);
template Var<double> square(Var<double>);
template Var<float> abs(Var<float>);
template Var<double> abs(Var<double>);
template Var<float> sin(Var<float>);
template Var<double> sin(Var<double>);
template Var<float> cos(Var<float>);
template Var<double> cos(Var<double>);
template Var<float> tanh(Var<float>);
template Var<double> tanh(Var<double>);
template Var<float> sigmoid(Var<float>);
template Var<double> sigmoid(Var<double>);
template Var<float> silu(Var<float>);
template Var<double> silu(Var<double>);
template Var<float> softplus(Var<float>);
template Var<double> softplus(Var<double>);
template Var<float> relu(Var<float>);
template Var<double> relu(Var<double>);
template Var<float> gelu(Var<float>);
template Var<double> gelu(Var<double>);
template Var<float> gelu_tanh(Var<float>);
template Var<double> gelu_tanh(Var<double>);
template Var<float> clamp(Var<float>, double, double);
template Var<double> clamp(Var<double>, double, double);

}  // namespace xtape
