#include <xtape/framework/kernels/layer_norm.hpp>
#include <xtape/framework/kernels/rows.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

template <class T>
Var<T> layer_norm(Var<T> x, OptionalOperand<T> gain, OptionalOperand<T> bias, double eps) {
  Tape<T>& tape = tape_of("layer_norm", x);
  const Shape shape = x.shape();
  require<ShapeError>(shape.rank() > 0 && shape.back() > 0,
                      "[layer_norm] x must be (..., width) with width at least 1, got {}", shape);
  require(eps >= 0, "[layer_norm] eps must not be negative, got {}", eps);
  const std::size_t rows = shape.rows(), width = shape.back();
  const Var<T> g = gain ? gain->on(tape) : Var<T>(), b = bias ? bias->on(tape) : Var<T>();
  const bool has_gain = gain.has_value(), has_bias = bias.has_value();
  if (has_gain) tape.check(g, "layer_norm");
  if (has_bias) tape.check(b, "layer_norm");
  for (const auto& [name, present, operand] : {std::tuple("gain", has_gain, g), std::tuple("bias", has_bias, b)})
    if (present)
      require<ShapeError>(operand.shape() == Shape{width}, "[layer_norm] {} must be ({},) to match x {}, got {}", name,
                          width, shape, operand.shape());
  std::array<Var<T>, 3> inputs{x};
  std::size_t count = 1;
  if (has_gain) inputs[count++] = g;
  if (has_bias) inputs[count++] = b;
  Var<T> y = tape.output_from("layer_norm", shape, inputs.data(), count);
  using Row = kernels::LayerNormRow<T>;
  auto* saved = static_cast<Row*>(tape.scratch_bytes(rows * sizeof(Row)));
  kernels::layer_norm_forward(rows, width, x.data(), has_gain ? g.data() : nullptr, has_bias ? b.data() : nullptr, eps,
                              y.data(), saved);
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    const T* dy = t.slot(y).data;
    const auto slot_of = [&](bool wanted, Var<T> v) { return wanted ? t.slot(v) : GradientSlot<T>{nullptr, false}; };
    const bool wants_gain = has_gain && g.requires_grad(), wants_bias = has_bias && b.requires_grad();
    const auto dx = slot_of(x.requires_grad(), x), dg = slot_of(wants_gain, g), db = slot_of(wants_bias, b);
    const auto partial = t.workspace(2 * width * kernels::column_sum_pieces(rows));
    kernels::layer_norm_backward(rows, width, x.data(), has_gain ? g.data() : nullptr, saved, dy, dx.data,
                                 dx.accumulate, dg.data, dg.accumulate, db.data, db.accumulate, partial.data());
  });
  return y;
}

template Var<float> layer_norm(Var<float>, OptionalOperand<float>, OptionalOperand<float>, double);
template Var<double> layer_norm(Var<double>, OptionalOperand<double>, OptionalOperand<double>, double);

}  // namespace xtape
