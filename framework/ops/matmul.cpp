#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/binary.hpp>
#include <xtape/framework/kernels/gemm.hpp>
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

template Var<float> matmul(Var<float>, Operand<float>);
template Var<double> matmul(Var<double>, Operand<double>);

}  // namespace xtape
