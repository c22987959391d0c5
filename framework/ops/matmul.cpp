#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/binary.hpp>
#include <xtape/framework/kernels/gemm.hpp>
#include <xtape/framework/kernels/reduce.hpp>
#include <xtape/framework/ops/ops.hpp>

#include <algorithm>

namespace xtape {
namespace {

using kernels::Transpose;

/// One product for each pair of leading indices: a (., m, k) b (., k, n) -> y (., m, n).
struct Products {
  std::size_t m, n, k, count;
  kernels::Broadcast leading;  // in matrices

  std::size_t place(const std::array<std::size_t, 4>& stride, std::size_t i) const {
    std::size_t at = 0;
    for (std::size_t axis = 4; axis-- > 0; i /= leading.extent[axis]) at += i % leading.extent[axis] * stride[axis];
    return at;
  }
  std::size_t left(std::size_t i) const { return place(leading.left, i); }
  std::size_t right(std::size_t i) const { return place(leading.right, i); }
};

Shape leading_axes(const Shape& x) { return Shape(x.begin(), x.end() - 2); }

Products plan_products(const Shape& a, const Shape& b, Shape& result) {
  const Shape leading_a = leading_axes(a), leading_b = leading_axes(b);
  result = broadcast("matmul", leading_a, leading_b);
  Products plan{a[a.rank() - 2], b.back(), a.back(), result.size(),
                kernels::plan_broadcast(result, leading_a, leading_b)};
  if (leading_b.size() == 1 && leading_a.size() == result.size()) {  // all rows of a meet the same b: one product
    plan.m *= plan.count;
    plan.count = 1;
    plan.leading = kernels::plan_broadcast({}, {}, {});
  }
  result.push_back(a[a.rank() - 2]);
  result.push_back(b.back());
  return plan;
}

// A product on all threads, and on one.
template <class T>
constexpr auto divided = [](auto... arguments) { kernels::parallel_gemm<T>(arguments...); };
template <class T>
constexpr auto whole = [](auto... arguments) { kernels::gemm<T>(arguments...); };

/// f(i, product) for every product, where product is divided or whole: many products run beside each other, a
/// single one is divided.
template <class T, class F>
void for_each_product(const Products& plan, F&& f) {
  if (plan.count == 1)
    f(std::size_t{0}, divided<T>);
  else
    parallel_for(plan.count, [&](std::size_t i, std::size_t) { f(i, whole<T>); });
}

/// A gradient whose operand was repeated takes its products one after another, in order.
template <class T, class F>
void for_each_gradient(const Products& plan, Var<T> x, std::size_t matrix, F&& f) {
  const auto [dx, accumulate] = x.tape().slot(x);
  if (x.size() == plan.count * matrix) {
    for_each_product<T>(
        plan, [&, dx = dx, beta = accumulate ? T(1) : T(0)](std::size_t i, auto product) { f(i, product, dx, beta); });
  } else {
    if (!accumulate) std::fill_n(dx, x.size(), T(0));
    for (std::size_t i = 0; i < plan.count; ++i) f(i, divided<T>, dx, T(1));
  }
}

template <class T>
Var<T> matmul_of_matrices(Var<T> a, Var<T> b) {
  Shape shape;
  const Products plan = plan_products(a.shape(), b.shape(), shape);
  Tape<T>& tape = a.tape();
  Var<T> y = tape.output("matmul", shape, a, b);
  const auto [m, n, k, count, leading] = plan;
  for_each_product<T>(plan, [&, m = m, n = n, k = k](std::size_t i, auto product) {
    product(Transpose::no, Transpose::no, m, n, k, T(1), a.data() + plan.left(i) * m * k, k,
            b.data() + plan.right(i) * k * n, n, T(0), y.data() + i * m * n, n);
  });
  tape.on_backward(y, [=, m = m, n = n, k = k] {
    const T* dy = y.tape().slot(y).data;
    if (a.requires_grad())  // da = dy b^T
      for_each_gradient(plan, a, m * k, [&](std::size_t i, auto product, T* da, T beta) {
        product(Transpose::no, Transpose::yes, m, k, n, T(1), dy + i * m * n, n, b.data() + plan.right(i) * k * n, n,
                beta, da + plan.left(i) * m * k, k);
      });
    if (b.requires_grad())  // db = a^T dy
      for_each_gradient(plan, b, k * n, [&](std::size_t i, auto product, T* db, T beta) {
        product(Transpose::yes, Transpose::no, k, n, m, T(1), a.data() + plan.left(i) * m * k, k, dy + i * m * n, n,
                beta, db + plan.right(i) * k * n, n);
      });
  });
  return y;
}

}  // namespace

template <class T>
Var<T> matmul(Var<T> a, Operand<T> right) {
  const Var<T> b = right.on(a.tape("matmul"));
  tape_of("matmul", a, b);
  const Shape sa = a.shape(), sb = b.shape();
  const bool fits = sa.rank() > 0 && sb.rank() > 0 && sa.back() == (sb.rank() == 1 ? sb[0] : sb[sb.rank() - 2]);
  require<ShapeError>(fits, "[matmul] expected a (..., m, k) and b (..., k, n), got {} and {}", sa, sb);
  if (sa.rank() > 1 && sb.rank() > 1) return matmul_of_matrices(a, b);
  // A vector is a row on the left and a column on the right; its axis of extent 1 leaves the result again.
  const Var<T> matrix_a = sa.rank() == 1 ? reshape(a, {1, sa[0]}) : a;
  const Var<T> matrix_b = sb.rank() == 1 ? reshape(b, {sb[0], 1}) : b;
  const Var<T> y = matmul_of_matrices(matrix_a, matrix_b);
  Shape shape;
  for (std::size_t axis = 0; axis < y.shape().rank(); ++axis) {
    const bool row = sa.rank() == 1 && axis + 2 == y.shape().rank(),
               column = sb.rank() == 1 && axis + 1 == y.shape().rank();
    if (!row && !column) shape.push_back(y.shape()[axis]);
  }
  return reshape(y, shape);
}

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
  if (has_bias) kernels::sum_backward(columns, b.data(), y.data(), T(1), false);  // y = bias, on every row
  kernels::parallel_gemm(Transpose::no, Transpose::yes, rows, out, in, T(1), x.data(), in, w.data(), in,
                         has_bias ? T(1) : T(0), y.data(), out);
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    const T* dy = t.slot(y).data;
    const auto beta = [](bool accumulate) { return accumulate ? T(1) : T(0); };
    if (x.requires_grad()) {  // dx = dy weight
      const auto [dx, accumulate] = t.slot(x);
      kernels::parallel_gemm(Transpose::no, Transpose::no, rows, in, out, T(1), dy, out, w.data(), in, beta(accumulate),
                             dx, in);
    }
    if (w.requires_grad()) {  // dweight = dy^T x
      const auto [dw, accumulate] = t.slot(w);
      kernels::parallel_gemm(Transpose::yes, Transpose::no, out, in, rows, T(1), dy, out, x.data(), in,
                             beta(accumulate), dw, in);
    }
    if (has_bias && b.requires_grad()) {  // dbias = column sums of dy
      const auto [db, accumulate] = t.slot(b);
      kernels::sum_forward(columns, dy, db, T(1), accumulate);
    }
  });
  return y;
}

template Var<float> matmul(Var<float>, Operand<float>);
template Var<double> matmul(Var<double>, Operand<double>);
template Var<float> linear(Var<float>, Operand<float>, OptionalOperand<float>);
template Var<double> linear(Var<double>, Operand<double>, OptionalOperand<double>);

}  // namespace xtape
