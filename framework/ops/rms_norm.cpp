#include <xtape/framework/kernels/rms_norm.hpp>
#include <xtape/framework/kernels/rows.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

template <class T>
Var<T> rms_norm(Var<T> x, OptionalOperand<T> gain, double eps) {
  Tape<T>& tape = tape_of("rms_norm", x);
  const Shape shape = x.shape();
  require<ShapeError>(shape.rank() > 0 && shape.back() > 0,
                      "[rms_norm] x must be (..., width) with width at least 1, got {}", shape);
  require(eps >= 0, "[rms_norm] eps must not be negative, got {}", eps);
  const std::size_t rows = shape.rows(), width = shape.back();
  const bool has_gain = gain.has_value();
  const Var<T> g = has_gain ? gain->on(tape) : x;
  tape.check(g, "rms_norm");
  if (has_gain)
    require<ShapeError>(g.shape() == Shape{width}, "[rms_norm] gain must be ({},) to match x {}, got {}", width, shape,
                        g.shape());
  Var<T> y = has_gain ? tape.output("rms_norm", shape, x, g) : tape.output("rms_norm", shape, x);
  T* saved = tape.scratch(rows);
  kernels::rms_norm_forward(rows, width, x.data(), has_gain ? g.data() : nullptr, eps, y.data(), saved);
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    const T* dy = t.slot(y).data;
    if (x.requires_grad()) {
      const auto [dx, accumulate] = t.slot(x);
      kernels::rms_norm_backward_x(rows, width, x.data(), has_gain ? g.data() : nullptr, saved, dy, dx, accumulate);
    }
    if (has_gain && g.requires_grad()) {
      const auto [dg, accumulate] = t.slot(g);
      const auto partial = t.workspace(width * kernels::column_sum_pieces(rows));
      kernels::rms_norm_backward_gain(rows, width, x.data(), saved, dy, dg, accumulate, partial.data());
    }
  });
  return y;
}

template Var<float> rms_norm(Var<float>, OptionalOperand<float>, double);
template Var<double> rms_norm(Var<double>, OptionalOperand<double>, double);

}  // namespace xtape
