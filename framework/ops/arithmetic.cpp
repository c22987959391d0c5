#include <xtape/framework/kernels/reduce.hpp>
#include <xtape/framework/ops/binary_op.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {
namespace {

/// Adds the gradient of one operand: straight into its slot, or summed over the axes along which the operand was
/// repeated.
template <class T>
void operand_backward(kernels::Binary op, kernels::Side side, const kernels::Broadcast& plan, Var<T> a, Var<T> b,
                      Var<T> y) {
  const Var<T> x = side == kernels::Side::left ? a : b;
  if (!x.requires_grad()) return;
  Tape<T>& tape = y.tape();
  const T* dy = tape.slot(y).data;
  const auto [dx, accumulate] = tape.slot(x);
  if (x.size() == y.size()) {
    kernels::binary_backward(op, side, plan, a.data(), b.data(), dy, dx, accumulate);
    return;
  }
  const kernels::Reduction reduction = kernels::plan_sum_to(y.shape(), x.shape());
  const bool passes_on = op == kernels::Binary::add || op == kernels::Binary::subtract;
  if (passes_on) {
    const bool negative = op == kernels::Binary::subtract && side == kernels::Side::right;
    kernels::sum_forward(reduction, dy, dx, negative ? T(-1) : T(1), accumulate);
    return;
  }
  const auto product = tape.workspace(y.size());
  kernels::binary_backward(op, side, plan, a.data(), b.data(), dy, product.data(), false);
  kernels::sum_forward(reduction, product.data(), dx, T(1), accumulate);
}

}  // namespace

template <class T>
Var<T> binary_op(const char* name, kernels::Binary op, Var<T> a, Var<T> b) {
  Tape<T>& tape = tape_of(name, a, b);
  const Shape shape = broadcast(name, a.shape(), b.shape());
  Var<T> y = tape.output(name, shape, a, b);
  const kernels::Broadcast plan = kernels::plan_broadcast(shape, a.shape(), b.shape());
  kernels::binary_forward(op, plan, a.data(), b.data(), y.data());
  tape.on_backward(y, [=] {
    operand_backward(op, kernels::Side::left, plan, a, b, y);
    operand_backward(op, kernels::Side::right, plan, a, b, y);
  });
  return y;
}

template <class T>
Var<T> operator+(Var<T> a, Var<T> b) {
  return binary_op("add", kernels::Binary::add, a, b);
}
template <class T>
Var<T> operator-(Var<T> a, Var<T> b) {
  return binary_op("subtract", kernels::Binary::subtract, a, b);
}
template <class T>
Var<T> operator*(Var<T> a, Var<T> b) {
  return binary_op("multiply", kernels::Binary::multiply, a, b);
}
template <class T>
Var<T> operator/(Var<T> a, Var<T> b) {
  return binary_op("divide", kernels::Binary::divide, a, b);
}

template <class T>
Var<T> pow(Var<T> a, Operand<T> b) {
  return binary_op("pow", kernels::Binary::power, a, b.on(a.tape("pow")));
}
template <class T>
Var<T> maximum(Var<T> a, Operand<T> b) {
  return binary_op("maximum", kernels::Binary::maximum, a, b.on(a.tape("maximum")));
}
template <class T>
Var<T> minimum(Var<T> a, Operand<T> b) {
  return binary_op("minimum", kernels::Binary::minimum, a, b.on(a.tape("minimum")));
}
template <class T>
Var<T> swiglu(Var<T> gate, Operand<T> up) {
  return binary_op("swiglu", kernels::Binary::swiglu, gate, up.on(gate.tape("swiglu")));
}

template Var<float> binary_op(const char*, kernels::Binary, Var<float>, Var<float>);
template Var<double> binary_op(const char*, kernels::Binary, Var<double>, Var<double>);
template Var<float> operator+(Var<float>, Var<float>);
template Var<double> operator+(Var<double>, Var<double>);
template Var<float> operator-(Var<float>, Var<float>);
template Var<double> operator-(Var<double>, Var<double>);
template Var<float> operator*(Var<float>, Var<float>);
template Var<double> operator*(Var<double>, Var<double>);
template Var<float> operator/(Var<float>, Var<float>);
template Var<double> operator/(Var<double>, Var<double>);
template Var<float> pow(Var<float>, Operand<float>);
template Var<double> pow(Var<double>, Operand<double>);
template Var<float> maximum(Var<float>, Operand<float>);
template Var<double> maximum(Var<double>, Operand<double>);
template Var<float> minimum(Var<float>, Operand<float>);
template Var<double> minimum(Var<double>, Operand<double>);
template Var<float> swiglu(Var<float>, Operand<float>);
template Var<double> swiglu(Var<double>, Operand<double>);

}  // namespace xtape
