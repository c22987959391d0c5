#include <xtape/framework/kernels/axis.hpp>
#include <xtape/framework/kernels/max.hpp>
#include <xtape/framework/kernels/reduce.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {
namespace {

using Summed = std::array<bool, Shape::max_rank>;

template <class T>
Summed summed_axes(const char* op, Var<T> x, const Axes& axes) {
  tape_of(op, x);
  Summed summed{};
  const auto resolved = axes.resolve(op, x.shape().rank());
  for (std::size_t i = 0; i < axes.count(); ++i) summed[resolved[i]] = true;
  return summed;
}

/// The shape of x without the summed axes, or with 1 in their place.
Shape reduced_shape(const Shape& x, const Summed& summed, bool keep_dims) {
  Shape shape;
  for (std::size_t axis = 0; axis < x.rank(); ++axis) {
    if (!summed[axis])
      shape.push_back(x[axis]);
    else if (keep_dims)
      shape.push_back(1);
  }
  return shape;
}

/// How many elements make one of the result.
std::size_t summed_count(const Shape& x, const Summed& summed) {
  std::size_t count = 1;
  for (std::size_t axis = 0; axis < x.rank(); ++axis)
    if (summed[axis]) count *= x[axis];
  return count;
}

template <class T>
Var<T> sum_over(const char* name, Var<T> x, const Summed& summed, bool keep_dims, T scale = 1) {
  Tape<T>& tape = tape_of(name, x);
  const kernels::Reduction plan = kernels::plan_reduction(x.shape(), summed);
  Var<T> y = tape.output(name, reduced_shape(x.shape(), summed, keep_dims), x);
  kernels::sum_forward(plan, x.data(), y.data(), scale, false);
  tape.on_backward(y, [=] {
    const auto [dx, accumulate] = x.tape().slot(x);
    kernels::sum_backward(plan, y.tape().slot(y).data, dx, scale, accumulate);
  });
  return y;
}

template <class T>
Var<T> mean_over(const char* name, Var<T> x, const Summed& summed, bool keep_dims) {
  tape_of(name, x);
  const std::size_t count = summed_count(x.shape(), summed);
  require<ShapeError>(count > 0, "[{}] expected at least one element to average over, got shape {}", name, x.shape());
  return sum_over(name, x, summed, keep_dims, T(1) / static_cast<T>(count));
}

template <class T>
Var<T> var_over(Var<T> x, const Summed& summed, bool keep_dims, double correction) {
  tape_of("var", x);
  const auto count = static_cast<double>(summed_count(x.shape(), summed));
  require<ShapeError>(correction >= 0 && count > correction,
                      "[var] expected more elements than the correction of {}, which must not be negative, got {} of "
                      "shape {}",
                      correction, count, x.shape());
  const Var<T> deviation = x - mean_over("var", x, summed, true);
  return sum_over("var", square(deviation), summed, keep_dims, static_cast<T>(1 / (count - correction)));
}

template <class T>
Var<T> max_over(Var<T> x, const Summed& summed, bool keep_dims) {
  Tape<T>& tape = tape_of("max", x);
  require<ShapeError>(summed_count(x.shape(), summed) > 0,
                      "[max] expected at least one element to take the largest of, got shape {}", x.shape());
  const kernels::Reduction plan = kernels::plan_reduction(x.shape(), summed);
  Var<T> y = tape.output("max", reduced_shape(x.shape(), summed, keep_dims), x);
  kernels::max_forward(plan, x.data(), y.data());
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    const auto [dx, accumulate] = t.slot(x);
    const auto counts = t.workspace(y.size());
    kernels::max_backward(plan, x.data(), y.data(), t.slot(y).data, dx, accumulate, counts.data());
  });
  return y;
}

constexpr Summed all{true, true, true, true};

}  // namespace

template <class T>
Var<T> sum(Var<T> x) {
  return sum_over("sum", x, all, false);
}
template <class T>
Var<T> sum(Var<T> x, Axes axes, bool keep_dims) {
  return sum_over("sum", x, summed_axes("sum", x, axes), keep_dims);
}
template <class T>
Var<T> mean(Var<T> x) {
  return mean_over("mean", x, all, false);
}
template <class T>
Var<T> mean(Var<T> x, Axes axes, bool keep_dims) {
  return mean_over("mean", x, summed_axes("mean", x, axes), keep_dims);
}
template <class T>
Var<T> var(Var<T> x, double correction) {
  return var_over(x, all, false, correction);
}
template <class T>
Var<T> var(Var<T> x, Axes axes, bool keep_dims, double correction) {
  return var_over(x, summed_axes("var", x, axes), keep_dims, correction);
}
template <class T>
Var<T> max(Var<T> x) {
  return max_over(x, all, false);
}
template <class T>
Var<T> max(Var<T> x, Axes axes, bool keep_dims) {
  return max_over(x, summed_axes("max", x, axes), keep_dims);
}

template <class T>
Var<T> cumsum(Var<T> x, int axis) {
  Tape<T>& tape = tape_of("cumsum", x);
  const kernels::Around a = kernels::around(x.shape(), resolve_axis("cumsum", axis, x.shape().rank()));
  Var<T> y = tape.output("cumsum", x.shape(), x);
  kernels::cumsum_forward(a, x.data(), y.data());
  tape.on_backward(y, [=] {
    const auto [dx, accumulate] = x.tape().slot(x);
    kernels::cumsum_backward(a, y.tape().slot(y).data, dx, accumulate);
  });
  return y;
}

template Var<float> sum(Var<float>);
template Var<float> sum(Var<float>, Axes, bool);
template Var<float> mean(Var<float>);
template Var<float> mean(Var<float>, Axes, bool);
template Var<float> var(Var<float>, double);
template Var<float> var(Var<float>, Axes, bool, double);
template Var<float> max(Var<float>);
template Var<float> max(Var<float>, Axes, bool);
template Var<float> cumsum(Var<float>, int);
template Var<double> sum(Var<double>);
template Var<double> sum(Var<double>, Axes, bool);
template Var<double> mean(Var<double>);
template Var<double> mean(Var<double>, Axes, bool);
template Var<double> var(Var<double>, double);
template Var<double> var(Var<double>, Axes, bool, double);
template Var<double> max(Var<double>);
template Var<double> max(Var<double>, Axes, bool);
template Var<double> cumsum(Var<double>, int);

}  // namespace xtape
