#include <xtape/framework/kernels/softmax.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {
namespace {

template <class T>
using Forward = void (*)(std::size_t, std::size_t, const T*, T*);
template <class T>
using Backward = void (*)(std::size_t, std::size_t, const T*, const T*, T*, bool);

template <class T>
Var<T> along_rows(const char* name, Var<T> x, Forward<T> forward, Backward<T> backward) {
  const std::size_t rows = x.shape().rows(), columns = x.shape().back();
  Var<T> y = x.tape().output(name, x.shape(), x);
  forward(rows, columns, x.data(), y.data());
  x.tape().on_backward(y, [=] {
    const auto [dx, accumulate] = x.tape().slot(x);
    backward(rows, columns, y.data(), y.tape().slot(y).data, dx, accumulate);
  });
  return y;
}

/// Moves the axis to the end and back, if it is not there already.
template <class T, class F>
Var<T> with_axis_last(const char* name, Var<T> x, int axis, F&& f) {
  tape_of(name, x);
  const std::size_t rank = x.shape().rank();
  require<ShapeError>(rank > 0, "[{}] expected an array with at least one axis, got a scalar", name);
  const std::size_t a = resolve_axis(name, axis, rank);
  if (a + 1 == rank) return f(x);
  const int i = static_cast<int>(a), last = static_cast<int>(rank - 1);
  const auto swap = [&](Var<T> v) {
    const auto at = [&](int k) { return k == i ? last : k == last ? i : k; };
    return rank == 2   ? transpose(v, {1, 0})
           : rank == 3 ? transpose(v, {at(0), at(1), at(2)})
                       : transpose(v, {at(0), at(1), at(2), at(3)});
  };
  return swap(f(swap(x)));
}

}  // namespace

template <class T>
Var<T> softmax(Var<T> x, int axis) {
  return with_axis_last("softmax", x, axis, [](Var<T> v) {
    return along_rows<T>("softmax", v, kernels::softmax_forward<T>, kernels::softmax_backward<T>);
  });
}

template <class T>
Var<T> log_softmax(Var<T> x, int axis) {
  return with_axis_last("log_softmax", x, axis, [](Var<T> v) {
    return along_rows<T>("log_softmax", v, kernels::log_softmax_forward<T>, kernels::log_softmax_backward<T>);
  });
}

template Var<float> softmax(Var<float>, int);
template Var<double> softmax(Var<double>, int);
template Var<float> log_softmax(Var<float>, int);
template Var<double> log_softmax(Var<double>, int);

}  // namespace xtape
