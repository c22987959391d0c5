#include <xtape/framework/kernels/axis.hpp>
#include <xtape/framework/kernels/copy.hpp>
#include <xtape/framework/ops/ops.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace xtape {
namespace {

using Extent = std::array<std::size_t, 4>;

/// y = x under the given strides, and the same way back for the gradient.
template <class T>
Var<T> copy_op(const char* name, Var<T> x, const Shape& shape, const Extent& extent, std::size_t x_offset,
               const kernels::Strides& x_stride, const kernels::Strides& y_stride, bool covers_x) {
  Var<T> y = x.tape().output(name, shape, x);
  kernels::strided_copy(extent, x.data() + x_offset, x_stride, y.data(), y_stride, false);
  x.tape().on_backward(y, [=] {
    const auto [dx, accumulate] = x.tape().slot(x);
    if (!accumulate && !covers_x) std::fill_n(dx, x.size(), T(0));
    kernels::strided_copy(extent, y.tape().slot(y).data, y_stride, dx + x_offset, x_stride, accumulate || !covers_x);
  });
  return y;
}

std::array<std::size_t, 4> row_major(const Shape& shape) {
  std::array<std::size_t, 4> stride{};
  std::size_t step = 1;
  for (std::size_t axis = shape.rank(); axis-- > 0; step *= shape[axis]) stride[axis] = step;
  return stride;
}

using kernels::around;

}  // namespace

template <class T>
Var<T> reshape(Var<T> x, Shape shape) {
  return x.tape("reshape").alias("reshape", shape, x);
}

template <class T>
Var<T> transpose(Var<T> x, Axes permutation) {
  tape_of("transpose", x);
  const Shape from = x.shape();
  require<ShapeError>(permutation.count() == from.rank(),
                      "[transpose] expected a permutation of {} axes for shape {}, got {} axes", from.rank(), from,
                      permutation.count());
  const auto axes = permutation.resolve("transpose", from.rank());
  const auto stride = row_major(from);
  const std::size_t pad = 4 - from.rank();
  Shape shape;
  Extent extent{1, 1, 1, 1};
  kernels::Strides x_stride{}, y_stride{};
  for (std::size_t i = 0; i < from.rank(); ++i) {
    shape.push_back(from[axes[i]]);
    extent[pad + i] = from[axes[i]];
    x_stride[pad + i] = stride[axes[i]];
  }
  const auto to = row_major(shape);
  for (std::size_t i = 0; i < from.rank(); ++i) y_stride[pad + i] = to[i];
  return copy_op("transpose", x, shape, extent, 0, x_stride, y_stride, true);
}

template <class T>
Var<T> transpose(Var<T> x) {
  tape_of("transpose", x);
  switch (x.shape().rank()) {
    case 2:
      return transpose(x, {1, 0});
    case 3:
      return transpose(x, {2, 1, 0});
    case 4:
      return transpose(x, {3, 2, 1, 0});
    default:
      return reshape(x, x.shape());
  }
}

template <class T>
Var<T> slice(Var<T> x, int axis, std::size_t begin, std::size_t end) {
  tape_of("slice", x);
  const std::size_t a = resolve_axis("slice", axis, x.shape().rank());
  const auto [before, along, after] = around(x.shape(), a);
  require<ShapeError>(begin <= end && end <= along,
                      "[slice] expected 0 <= begin <= end <= {} on axis {} of {}, got begin {} and end {}", along, a,
                      x.shape(), begin, end);
  Shape shape = x.shape();
  shape[a] = end - begin;
  const std::size_t run = (end - begin) * after;
  return copy_op("slice", x, shape, {1, 1, before, run}, begin * after, {0, 0, along * after, 1}, {0, 0, run, 1},
                 run == along * after);
}

template <class T>
Var<T> concat(std::span<const Var<T>> parts, int axis) {
  constexpr std::size_t most = 64;
  require<ShapeError>(!parts.empty() && parts.size() <= most, "[concat] expected 1 to {} parts, got {}", most,
                      parts.size());
  Tape<T>& tape = parts[0].tape("concat");
  for (const Var<T>& part : parts) tape.check(part, "concat");
  Shape shape = parts[0].shape();
  const std::size_t a = resolve_axis("concat", axis, shape.rank());
  shape[a] = 0;
  for (const Var<T>& part : parts) {
    Shape rest = part.shape();
    const bool fits = rest.rank() == shape.rank();
    if (fits) {
      shape[a] += rest[a];
      rest[a] = shape[a];
    }
    require<ShapeError>(fits && rest == shape, "[concat] parts must agree in every axis but {}, got {} beside {}", a,
                        part.shape(), parts[0].shape());
  }
  const auto [before, along, after] = around(shape, a);
  const std::size_t row = along * after, count = parts.size();
  Var<T> y = tape.output_from("concat", shape, parts.data(), count);
  // The callback holds its handles in the tape's memory, since it may own nothing.
  auto* kept = static_cast<Var<T>*>(tape.scratch_bytes(count * sizeof(Var<T>)));
  std::uninitialized_copy(parts.begin(), parts.end(), kept);
  const auto for_each_part = [=](auto&& f) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t run = kept[i].shape()[a] * after;
      f(kept[i], offset, run);
      offset += run;
    }
  };
  for_each_part([&, before = before](Var<T> part, std::size_t offset, std::size_t run) {
    kernels::strided_copy({1, 1, before, run}, part.data(), {0, 0, run, 1}, y.data() + offset, {0, 0, row, 1}, false);
  });
  tape.on_backward(y, [=, before = before] {
    const T* dy = y.tape().slot(y).data;
    for_each_part([&](Var<T> part, std::size_t offset, std::size_t run) {
      if (!part.requires_grad()) return;
      const auto [dx, accumulate] = part.tape().slot(part);
      kernels::strided_copy({1, 1, before, run}, dy + offset, {0, 0, row, 1}, dx, {0, 0, run, 1}, accumulate);
    });
  });
  return y;
}

template <class T>
Var<T> stack(std::span<const Var<T>> parts, int axis) {
  constexpr std::size_t most = 64;
  require<ShapeError>(!parts.empty() && parts.size() <= most, "[stack] expected 1 to {} parts, got {}", most,
                      parts.size());
  Tape<T>& tape = parts[0].tape("stack");
  for (const Var<T>& part : parts) tape.check(part, "stack");
  const Shape shape = parts[0].shape();
  require<ShapeError>(shape.rank() < Shape::max_rank, "[stack] parts must have rank at most {}, got {}",
                      Shape::max_rank - 1, shape);
  const std::size_t a = resolve_axis("stack", axis, shape.rank() + 1);
  Shape wider(shape.begin(), shape.begin() + a);
  wider.push_back(1);
  for (std::size_t i = a; i < shape.rank(); ++i) wider.push_back(shape[i]);
  std::array<Var<T>, most> widened;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    require<ShapeError>(parts[i].shape() == shape, "[stack] parts must have one shape, got {} beside {}",
                        parts[i].shape(), shape);
    widened[i] = reshape(parts[i], wider);
  }
  return concat(std::span<const Var<T>>(widened.data(), parts.size()), static_cast<int>(a));
}

template <class T>
void split(Var<T> x, std::span<const std::size_t> extents, int axis, std::span<Var<T>> parts) {
  tape_of("split", x);
  const std::size_t a = resolve_axis("split", axis, x.shape().rank());
  std::size_t total = 0;
  for (const std::size_t extent : extents) total += extent;
  require<ShapeError>(extents.size() == parts.size() && total == x.shape()[a],
                      "[split] extents must add up to {}, axis {} of {}, got {}", x.shape()[a], a, x.shape(),
                      fmt::join(extents, " + "));
  std::size_t begin = 0;
  for (std::size_t i = 0; i < parts.size(); begin += extents[i++])
    parts[i] = slice(x, static_cast<int>(a), begin, begin + extents[i]);
}

template <class T>
void split(Var<T> x, int axis, std::span<Var<T>> parts) {
  tape_of("split", x);
  const std::size_t a = resolve_axis("split", axis, x.shape().rank()), count = parts.size(), along = x.shape()[a];
  require<ShapeError>(count > 0 && along % count == 0, "[split] axis {} must be a multiple of {} parts, got {} of {}",
                      a, count, along, x.shape());
  for (std::size_t i = 0; i < count; ++i)
    parts[i] = slice(x, static_cast<int>(a), i * along / count, (i + 1) * along / count);
}

template <class T>
Var<T> pad(Var<T> x, int axis, std::size_t before, std::size_t after, double value) {
  Tape<T>& tape = tape_of("pad", x);
  const std::size_t a = resolve_axis("pad", axis, x.shape().rank());
  const auto [outer, along, inner] = around(x.shape(), a);
  Shape shape = x.shape();
  require<ShapeError>(before <= Shape::max_size && after <= Shape::max_size,
                      "[pad] expected at most {} places, got {} before and {} after", Shape::max_size, before, after);
  shape[a] += before + after;
  const std::size_t run = along * inner, row = shape[a] * inner, offset = before * inner;
  const Extent extent{1, 1, outer, run};
  const kernels::Strides narrow{0, 0, run, 1}, wide{0, 0, row, 1};
  Var<T> y = tape.output("pad", shape, x);
  std::fill_n(y.data(), y.size(), static_cast<T>(value));
  kernels::strided_copy(extent, x.data(), narrow, y.data() + offset, wide, false);
  tape.on_backward(y, [=] {
    const auto [dx, accumulate] = x.tape().slot(x);
    kernels::strided_copy(extent, y.tape().slot(y).data + offset, wide, dx, narrow, accumulate);
  });
  return y;
}

template <class T>
Var<T> detach(Var<T> x) {
  return x.tape("detach").constant_alias("detach", x);
}

template Var<float> reshape(Var<float>, Shape);
template Var<double> reshape(Var<double>, Shape);
template Var<float> transpose(Var<float>, Axes);
template Var<double> transpose(Var<double>, Axes);
template Var<float> transpose(Var<float>);
template Var<double> transpose(Var<double>);
template Var<float> slice(Var<float>, int, std::size_t, std::size_t);
template Var<double> slice(Var<double>, int, std::size_t, std::size_t);
template Var<float> concat(std::span<const Var<float>>, int);
template Var<double> concat(std::span<const Var<double>>, int);
template Var<float> stack(std::span<const Var<float>>, int);
template void split(Var<float>, std::span<const std::size_t>, int, std::span<Var<float>>);
template void split(Var<float>, int, std::span<Var<float>>);
template Var<float> pad(Var<float>, int, std::size_t, std::size_t, double);
template Var<float> detach(Var<float>);
template Var<double> stack(std::span<const Var<double>>, int);
template void split(Var<double>, std::span<const std::size_t>, int, std::span<Var<double>>);
template void split(Var<double>, int, std::span<Var<double>>);
template Var<double> pad(Var<double>, int, std::size_t, std::size_t, double);
template Var<double> detach(Var<double>);

}  // namespace xtape
