#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/bias_gelu.hpp>
#include <xtape/framework/kernels/gemm.hpp>
#include <xtape/framework/kernels/reduce.hpp>
#include <xtape/framework/kernels/rows.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {
namespace {

using kernels::GeluForm;
using kernels::parallel_gemm;
using kernels::Transpose;

/// The operands of x weight^T + bias, checked: x (rows, in), weight (out, in), bias (out,).
template <class T>
struct LinearOperands {
  Var<T> x, w, b;
  bool has_bias;
  std::size_t rows, in, out;

  LinearOperands(const char* op, Var<T> x_, Operand<T> weight, OptionalOperand<T> bias)
      : x(x_), w(weight.on(x.tape(op))), b(bias ? bias->on(x.tape(op)) : Var<T>()), has_bias(bias.has_value()) {
    tape_of(op, x, w, has_bias ? b : x);
    const Shape sx = x.shape(), sw = w.shape();
    require<ShapeError>(sw.rank() == 2, "[{}] weight must be (out, in), got {}", op, sw);
    require<ShapeError>(sx.rank() > 0 && sx.back() == sw[1], "[{}] x must be (..., {}) to match weight {}, got {}", op,
                        sw[1], sw, sx);
    if (has_bias)
      require<ShapeError>(b.shape() == Shape{sw[0]}, "[{}] bias must be ({},) to match weight {}, got {}", op, sw[0],
                          sw, b.shape());
    rows = sx.rows(), in = sw[1], out = sw[0];
  }
  Var<T> output(const char* op) const {
    const Shape shape = x.shape().with_back(out);
    return has_bias ? x.tape().output(op, shape, x, w, b) : x.tape().output(op, shape, x, w);
  }
  /// Null if the gradient of the bias is not wanted.
  GradientSlot<T> bias_slot() const {
    return has_bias && b.requires_grad() ? b.tape().slot(b) : GradientSlot<T>{nullptr, false};
  }
  /// The gradients of x, weight and, if db is not null, bias from that of their sum.
  void product_backward(const T* dy, GradientSlot<T> db) const {
    if (x.requires_grad()) {  // dx = dy weight
      const auto [dx, accumulate] = x.tape().slot(x);
      parallel_gemm(Transpose::no, Transpose::no, rows, in, out, T(1), dy, out, w.data(), in, T(accumulate), dx, in);
    }
    const GradientSlot<T> dw = w.requires_grad() ? w.tape().slot(w) : GradientSlot<T>{nullptr, false};
    // Where there are many rows and few weights, a thread had better read the rows that it wrote than those of another
    // core: their gradients are sums of two halves.
    const bool halved = rows >= 512 && out * in > 0 && 4 * out * in <= rows * (out + in);
    if (halved && (dw.data != nullptr || db.data != nullptr)) return halves_backward(dy, dw, db);
    if (dw.data != nullptr)  // dweight = dy^T x
      parallel_gemm(Transpose::yes, Transpose::no, out, in, rows, T(1), dy, out, x.data(), in, T(dw.accumulate),
                    dw.data, in);
    if (db.data != nullptr)  // dbias = column sums of dy
      kernels::sum_forward({{1, 1, 1, rows, out}}, dy, db.data, T(1), db.accumulate);
  }

 private:
  void halves_backward(const T* dy, GradientSlot<T> dw, GradientSlot<T> db) const {
    const std::size_t half = (rows + 127) / 128 * 64;
    const auto dw2 = w.tape().workspace(dw.data != nullptr ? out * in : 0),
               db2 = w.tape().workspace(db.data != nullptr ? out : 0);
    const kernels::GemmBlocks blocks(out, in, half);
    parallel_for(2 * blocks.count(), [&](std::size_t number, std::size_t) {
      const auto [i, m, j, n] = blocks[number % blocks.count()];
      const bool second = number >= blocks.count();
      const std::size_t first_row = second ? half : 0, k = second ? rows - half : half;
      const T *of_dy = dy + first_row * out, *of_x = x.data() + first_row * in;
      if (dw.data != nullptr)
        kernels::gemm(Transpose::yes, Transpose::no, m, n, k, T(1), of_dy + i, out, of_x + j, in,
                      T(!second && dw.accumulate), (second ? dw2.data() : dw.data) + i * in + j, in);
      if (db.data != nullptr && i == 0 && j == 0)
        kernels::sum_forward({{1, 1, 1, k, out}}, of_dy, second ? db2.data() : db.data, T(1), !second && db.accumulate);
    });
    if (dw.data != nullptr) kernels::sum_forward({{1, 1, 1, 1, out * in}}, dw2.data(), dw.data, T(1), true);
    if (db.data != nullptr) kernels::sum_forward({{1, 1, 1, 1, out}}, db2.data(), db.data, T(1), true);
  }
};

/// y = gelu(x weight^T + bias) and, unless slope is null, slope = gelu' of it: each block of the product is taken on
/// while it is in the cache.
template <class T>
void multiply_then_gelu(GeluForm form, const LinearOperands<T>& p, T* y, T* slope) {
  T* const h = slope != nullptr ? slope : y;
  const kernels::GemmBlocks blocks(p.rows, p.out, p.in);
  parallel_for(blocks.count(), [&](std::size_t number, std::size_t) {
    const auto [row, rows, column, columns] = blocks[number];
    const std::size_t at = row * p.out + column;
    kernels::gemm(Transpose::no, Transpose::yes, rows, columns, p.in, T(1), p.x.data() + row * p.in, p.in,
                  p.w.data() + column * p.in, p.in, T(0), h + at, p.out, p.has_bias ? p.b.data() + column : nullptr);
    kernels::gelu_of_block(form, rows, columns, p.out, h + at, y + at, slope != nullptr ? slope + at : nullptr);
  });
}

template <class T>
Var<T> linear_then_gelu(const char* op, GeluForm form, Var<T> x, Operand<T> weight, OptionalOperand<T> bias) {
  const LinearOperands<T> operands(op, x, weight, bias);
  const std::size_t rows = operands.rows, out = operands.out, n = rows * out;
  Var<T> y = operands.output(op);
  T* const slope = y.requires_grad() ? x.tape().scratch(n) : nullptr;
  multiply_then_gelu(form, operands, y.data(), slope);
  x.tape().on_backward(y, [=] {
    Tape<T>& t = y.tape();
    const auto db = operands.bias_slot();
    const auto dh = t.workspace(n),
               partial = t.workspace(db.data != nullptr ? out * kernels::column_sum_pieces(rows) : 0);
    kernels::bias_gelu_backward(rows, out, slope, t.slot(y).data, dh.data(), db.data, db.accumulate, partial.data());
    operands.product_backward(dh.data(), {nullptr, false});
  });
  return y;
}

}  // namespace

template <class T>
Var<T> linear(Var<T> x, Operand<T> weight, OptionalOperand<T> bias) {
  const LinearOperands<T> operands("linear", x, weight, bias);
  Var<T> y = operands.output("linear");
  parallel_gemm(Transpose::no, Transpose::yes, operands.rows, operands.out, operands.in, T(1), x.data(), operands.in,
                operands.w.data(), operands.in, T(0), y.data(), operands.out,
                operands.has_bias ? operands.b.data() : nullptr);
  x.tape().on_backward(y, [=] {
    Tape<T>& t = y.tape();
    operands.product_backward(t.slot(y).data, operands.bias_slot());
  });
  return y;
}

template <class T>
Var<T> linear_gelu(Var<T> x, Operand<T> weight, OptionalOperand<T> bias) {
  return linear_then_gelu("linear_gelu", GeluForm::exact, x, weight, bias);
}
template <class T>
Var<T> linear_gelu_tanh(Var<T> x, Operand<T> weight, OptionalOperand<T> bias) {
  return linear_then_gelu("linear_gelu_tanh", GeluForm::by_tanh, x, weight, bias);
}

template Var<float> linear(Var<float>, Operand<float>, OptionalOperand<float>);
template Var<double> linear(Var<double>, Operand<double>, OptionalOperand<double>);
template Var<float> linear_gelu(Var<float>, Operand<float>, OptionalOperand<float>);
template Var<double> linear_gelu(Var<double>, Operand<double>, OptionalOperand<double>);
template Var<float> linear_gelu_tanh(Var<float>, Operand<float>, OptionalOperand<float>);
template Var<double> linear_gelu_tanh(Var<double>, Operand<double>, OptionalOperand<double>);

}  // namespace xtape
