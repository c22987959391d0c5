#include <xtape/framework/kernels/binary.hpp>

#include <algorithm>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/binary_functions.hpp>

namespace xtape::kernels {
namespace {

template <class F>
void with_function(Binary op, F&& use) {
  switch (op) {
    case Binary::add:
      return use(Add{});
    case Binary::subtract:
      return use(Subtract{});
    case Binary::multiply:
      return use(Multiply{});
    case Binary::divide:
      return use(Divide{});
    case Binary::power:
      return use(Power{});
    case Binary::maximum:
      return use(Maximum{});
    case Binary::minimum:
      return use(Minimum{});
    case Binary::swiglu:
      return use(Swiglu{});
    case Binary::squared_error:
      return use(SquaredError{});
    case Binary::absolute_error:
      return use(AbsoluteError{});
    case Binary::bce_with_logits:
      return use(BceWithLogits{});
    case Binary::kl_divergence:
      return use(KlDivergence{});
  }
}

/// A row of an operand: consecutive numbers, or one number repeated.
template <class T>
struct Consecutive {
  const T* data;
  template <class Extent>
  Batch<T> at(std::size_t i, Extent extent) const {
    return load(data + i, extent);
  }
};
template <class T>
struct Repeated {
  Batch<T> value;
  template <class Extent>
  Batch<T> at(std::size_t, Extent) const {
    return value;
  }
};
template <class T>
struct Either {
  const T* data;
  bool repeated;
  template <class Extent>
  Batch<T> at(std::size_t i, Extent extent) const {
    return repeated ? Batch<T>(*data) : load(data + i, extent);
  }
};

/// Functions that cost less than a branch have a loop for each kind of row; the others ask at every vector, which
/// spares the compiler three of four loops.
template <class Function>
inline constexpr bool is_cheap = false;
template <>
inline constexpr bool is_cheap<Add> = true;
template <>
inline constexpr bool is_cheap<Subtract> = true;
template <>
inline constexpr bool is_cheap<Multiply> = true;

template <bool cheap, class T, class F>
void with_row(const T* data, std::size_t stride, F&& use) {
  if constexpr (!cheap)
    use(Either<T>{data, stride == 0});
  else if (stride == 0)
    use(Repeated<T>{Batch<T>(*data)});
  else
    use(Consecutive<T>{data});
}

/// use(a, b, at, n) for the runs of the result's last axis: a and b as rows, at = their place in the result.
template <bool cheap, class T, class F>
void for_each_run(const Broadcast& plan, const T* a, const T* b, F&& use) {
  constexpr std::size_t chunk = 8192;
  const std::size_t rows = plan.extent[0] * plan.extent[1] * plan.extent[2], columns = plan.extent[3];
  if (rows * columns == 0) return;
  const auto run_row = [&](std::size_t row, std::size_t begin, std::size_t end) {
    const std::size_t i2 = row % plan.extent[2], i1 = row / plan.extent[2] % plan.extent[1],
                      i0 = row / plan.extent[2] / plan.extent[1];
    const T* row_a = a + i0 * plan.left[0] + i1 * plan.left[1] + i2 * plan.left[2] + begin * plan.left[3];
    const T* row_b = b + i0 * plan.right[0] + i1 * plan.right[1] + i2 * plan.right[2] + begin * plan.right[3];
    with_row<cheap>(row_a, plan.left[3], [&](auto left) {
      with_row<cheap>(row_b, plan.right[3], [&](auto right) { use(left, right, row * columns + begin, end - begin); });
    });
  };
  if (columns >= chunk) {
    const std::size_t pieces_per_row = (columns + chunk - 1) / chunk;
    parallel_for(rows * pieces_per_row, [&](std::size_t piece, std::size_t) {
      const std::size_t begin = piece % pieces_per_row * chunk;
      run_row(piece / pieces_per_row, begin, std::min(begin + chunk, columns));
    });
  } else {
    parallel_chunks(rows, chunk / columns, [&](std::size_t begin, std::size_t end) {
      for (std::size_t row = begin; row < end; ++row) run_row(row, 0, columns);
    });
  }
}

}  // namespace

Broadcast plan_broadcast(const Shape& result, const Shape& left, const Shape& right) {
  const auto strides = [&](const Shape& operand) {
    std::array<std::size_t, 4> stride{};
    std::size_t step = 1;
    for (std::size_t axis = operand.rank(); axis-- > 0;) {
      stride[axis + 4 - operand.rank()] = operand[axis] == 1 ? 0 : step;
      step *= operand[axis];
    }
    return stride;
  };
  Broadcast full{{1, 1, 1, 1}, strides(left), strides(right)};
  for (std::size_t axis = 0; axis < result.rank(); ++axis) full.extent[axis + 4 - result.rank()] = result[axis];

  Broadcast plan{{1, 1, 1, 1}, {}, {}};
  std::size_t at = 3;  // the merged axis that grows
  for (std::size_t axis = 4; axis-- > 0;) {
    if (full.extent[axis] == 1) continue;
    const bool first = plan.extent[3] == 1 && at == 3;
    const bool joins = !first && full.left[axis] == plan.left[at] * plan.extent[at] &&
                       full.right[axis] == plan.right[at] * plan.extent[at];
    if (joins) {
      plan.extent[at] *= full.extent[axis];
      continue;
    }
    if (!first) --at;
    plan.extent[at] = full.extent[axis];
    plan.left[at] = full.left[axis];
    plan.right[at] = full.right[axis];
  }
  return plan;
}

template <class T>
void binary_forward(Binary op, const Broadcast& plan, const T* a, const T* b, T* y) {
  with_function(op, [&](auto function) {
    for_each_run<is_cheap<decltype(function)>>(plan, a, b, [&](auto left, auto right, std::size_t at, std::size_t n) {
      sweep<T>(n, [&](std::size_t i, auto extent) {
        store(y + at + i, decltype(function)::forward(left.at(i, extent), right.at(i, extent)), extent);
      });
    });
  });
}

template <class T>
void binary_backward(Binary op, Side side, const Broadcast& plan, const T* a, const T* b, const T* dy, T* g,
                     bool accumulate) {
  with_function(op, [&](auto function) {
    using Function = decltype(function);
    for_each_run<is_cheap<Function>>(plan, a, b, [&](auto left, auto right, std::size_t at, std::size_t n) {
      sweep<T>(n, [&](std::size_t i, auto extent) {
        const Batch<T> x = left.at(i, extent), z = right.at(i, extent), d = load(dy + at + i, extent);
        put(accumulate, g + at + i, side == Side::left ? Function::left(x, z, d) : Function::right(x, z, d), extent);
      });
    });
  });
}

template void binary_forward(Binary, const Broadcast&, const float*, const float*, float*);
template void binary_forward(Binary, const Broadcast&, const double*, const double*, double*);
template void binary_backward(Binary, Side, const Broadcast&, const float*, const float*, const float*, float*, bool);
template void binary_backward(Binary, Side, const Broadcast&, const double*, const double*, const double*, double*,
                              bool);

}  // namespace xtape::kernels
