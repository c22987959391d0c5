#include <xtape/framework/kernels/gemm.hpp>
#include <xtape/framework/kernels/reduce.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

template <class T>
Var<T> linear(Var<T> x, Operand<T> weight, OptionalOperand<T> bias) {
  Tape<T>& tape = x.tape("linear");
  const Var<T> w = weight.on(tape), b = bias ? bias->on(tape) : Var<T>();
  tape_of("linear", x, w, bias ? b : x);
  const Shape sx = x.shape(), sw = w.shape();
  require<ShapeError>(sw.rank() == 2, "[linear] weight must be (out, in), got {}", sw);
  require<ShapeError>(sx.rank() > 0 && sx.back() == sw[1], "[linear] x must be (..., {}) to match weight {}, got {}",
                      sw[1], sw, sx);
  if (bias)
    require<ShapeError>(b.shape() == Shape{sw[0]}, "[linear] bias must be ({},) to match weight {}, got {}", sw[0], sw,
                        b.shape());
  const bool has_bias = bias.has_value();
  const std::size_t rows = sx.rows(), in = sw[1], out = sw[0];
  const kernels::Reduction columns{{1, 1, 1, rows, out}};
  Var<T> y =
      has_bias ? tape.output("linear", sx.with_back(out), x, w, b) : tape.output("linear", sx.with_back(out), x, w);
  kernels::parallel_gemm(kernels::Transpose::no, kernels::Transpose::yes, rows, out, in, T(1), x.data(), in, w.data(),
                         in, T(0), y.data(), out, has_bias ? b.data() : nullptr);
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    const T* dy = t.slot(y).data;
    const auto beta = [](bool accumulate) { return accumulate ? T(1) : T(0); };
    if (x.requires_grad()) {  // dx = dy weight
      const auto [dx, accumulate] = t.slot(x);
      kernels::parallel_gemm(kernels::Transpose::no, kernels::Transpose::no, rows, in, out, T(1), dy, out, w.data(), in,
                             beta(accumulate), dx, in);
    }
    if (w.requires_grad()) {  // dweight = dy^T x
      const auto [dw, accumulate] = t.slot(w);
      kernels::parallel_gemm(kernels::Transpose::yes, kernels::Transpose::no, out, in, rows, T(1), dy, out, x.data(),
                             in, beta(accumulate), dw, in);
    }
    if (has_bias && b.requires_grad()) {  // dbias = column sums of dy
      const auto [db, accumulate] = t.slot(b);
      kernels::sum_forward(columns, dy, db, T(1), accumulate);
    }
  });
  return y;
}

template Var<float> linear(Var<float>, Operand<float>, OptionalOperand<float>);
template Var<double> linear(Var<double>, Operand<double>, OptionalOperand<double>);

}  // namespace xtape
