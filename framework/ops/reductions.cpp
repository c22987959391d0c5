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

template <class T>
Var<T> reduce(const char* name, Var<T> x, const Summed& summed, bool keep_dims, bool is_mean) {
  Tape<T>& tape = tape_of(name, x);
  Shape shape;
  std::size_t count = 1;
  for (std::size_t axis = 0; axis < x.shape().rank(); ++axis) {
    if (!summed[axis])
      shape.push_back(x.shape()[axis]);
    else if (keep_dims)
      shape.push_back(1);
    if (summed[axis]) count *= x.shape()[axis];
  }
  require<ShapeError>(!is_mean || count > 0, "[{}] expected at least one element to average over, got shape {}", name,
                      x.shape());
  const T scale = is_mean ? T(1) / static_cast<T>(count) : T(1);
  const kernels::Reduction plan = kernels::plan_reduction(x.shape(), summed);
  Var<T> y = tape.output(name, shape, x);
  kernels::sum_forward(plan, x.data(), y.data(), scale, false);
  tape.on_backward(y, [=] {
    const auto [dx, accumulate] = x.tape().slot(x);
    kernels::sum_backward(plan, y.tape().slot(y).data, dx, scale, accumulate);
  });
  return y;
}

constexpr Summed all{true, true, true, true};

}  // namespace

template <class T>
Var<T> sum(Var<T> x) {
  return reduce("sum", x, all, false, false);
}
template <class T>
Var<T> sum(Var<T> x, Axes axes, bool keep_dims) {
  return reduce("sum", x, summed_axes("sum", x, axes), keep_dims, false);
}
template <class T>
Var<T> mean(Var<T> x) {
  return reduce("mean", x, all, false, true);
}
template <class T>
Var<T> mean(Var<T> x, Axes axes, bool keep_dims) {
  return reduce("mean", x, summed_axes("mean", x, axes), keep_dims, true);
}

template Var<float> sum(Var<float>);
template Var<double> sum(Var<double>);
template Var<float> sum(Var<float>, Axes, bool);
template Var<double> sum(Var<double>, Axes, bool);
template Var<float> mean(Var<float>);
template Var<double> mean(Var<double>);
template Var<float> mean(Var<float>, Axes, bool);
template Var<double> mean(Var<double>, Axes, bool);

}  // namespace xtape
