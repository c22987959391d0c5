#include <xtape/framework/kernels/axis.hpp>
#include <xtape/framework/ops/indices.hpp>
#include <xtape/framework/ops/ops.hpp>

#include <algorithm>

namespace xtape {
namespace {

/// Whole slices of an axis by number; the indices live as long as the tape's record.
template <class T>
Var<T> select(const char* name, Var<T> x, std::size_t axis, std::size_t count, const std::int64_t* indices) {
  const kernels::Around a = kernels::around(x.shape(), axis);
  Shape shape = x.shape();
  shape[axis] = count;
  Var<T> y = x.tape().output(name, shape, x);
  kernels::index_select_forward(a, count, indices, x.data(), y.data());
  x.tape().on_backward(y, [=] {
    const auto [dx, accumulate] = x.tape().slot(x);
    kernels::index_select_backward(a, count, indices, -1, y.tape().slot(y).data, dx, accumulate);
  });
  return y;
}

}  // namespace

template <class T>
Var<T> index_select(Var<T> x, int axis, Integers indices) {
  Tape<T>& tape = tape_of("index_select", x);
  tape.check(indices, "index_select");
  const std::size_t a = resolve_axis("index_select", axis, x.shape().rank());
  require<ShapeError>(indices.shape.rank() == 1, "[index_select] indices must be (count,), got {}", indices.shape);
  check_range("index_select", "index", indices, x.shape()[a]);
  return select("index_select", x, a, indices.shape[0], indices.data);
}

template <class T>
Var<T> flip(Var<T> x, int axis) {
  Tape<T>& tape = tape_of("flip", x);
  const std::size_t a = resolve_axis("flip", axis, x.shape().rank()), along = x.shape()[a];
  auto* indices = static_cast<std::int64_t*>(tape.scratch_bytes(along * sizeof(std::int64_t)));
  for (std::size_t i = 0; i < along; ++i) indices[i] = static_cast<std::int64_t>(along - 1 - i);
  return select("flip", x, a, along, indices);
}

template <class T>
Var<T> gather(Var<T> x, int axis, Integers indices) {
  Tape<T>& tape = tape_of("gather", x);
  tape.check(indices, "gather");
  const std::size_t axis_number = resolve_axis("gather", axis, x.shape().rank());
  Shape expected = x.shape();
  if (indices.shape.rank() == expected.rank()) expected[axis_number] = indices.shape[axis_number];
  require<ShapeError>(indices.shape == expected,
                      "[gather] indices must have the shape of x {} in every axis but {}, got {}", x.shape(),
                      axis_number, indices.shape);
  check_range("gather", "index", indices, x.shape()[axis_number]);
  const kernels::Around a = kernels::around(x.shape(), axis_number);
  const std::size_t count = expected[axis_number];
  const std::int64_t* index = indices.data;
  Var<T> y = tape.output("gather", expected, x);
  kernels::gather_forward(a, count, index, x.data(), y.data());
  tape.on_backward(y, [=] {
    const auto [dx, accumulate] = x.tape().slot(x);
    kernels::gather_backward(a, count, index, y.tape().slot(y).data, dx, accumulate);
  });
  return y;
}

template <class T>
Var<T> one_hot(Tape<T>& tape, Integers indices, std::size_t classes) {
  tape.check(indices, "one_hot");
  require<ShapeError>(indices.shape.rank() < Shape::max_rank, "[one_hot] indices must have rank at most {}, got {}",
                      Shape::max_rank - 1, indices.shape);
  check_range("one_hot", "index", indices, classes);
  Shape shape = indices.shape;
  shape.push_back(classes);
  Var<T> y = tape.output("one_hot", shape);
  std::fill_n(y.data(), y.size(), T(0));
  for (std::size_t i = 0; i < indices.shape.size(); ++i)
    y.data()[i * classes + static_cast<std::size_t>(indices.data[i])] = T(1);
  return y;
}

template Var<float> index_select(Var<float>, int, Integers);
template Var<float> flip(Var<float>, int);
template Var<float> gather(Var<float>, int, Integers);
template Var<float> one_hot(Tape<float>&, Integers, std::size_t);
template Var<double> index_select(Var<double>, int, Integers);
template Var<double> flip(Var<double>, int);
template Var<double> gather(Var<double>, int, Integers);
template Var<double> one_hot(Tape<double>&, Integers, std::size_t);

}  // namespace xtape
