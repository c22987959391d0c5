#pragma once
// The bridge between a tape and xtensor: expressions come in, adaptors go out. No type of the library holds an xtensor
// container, so a program may compile xtensor with flags of its own.

#include <xtensor/xadapt.hpp>
#include <xtensor/xarray.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xnoalias.hpp>
#include <xtensor/xtensor.hpp>

#include <algorithm>
#include <type_traits>

#include <xtape/framework/tape/tape.hpp>

namespace xtape {
namespace detail {

/// An xtensor adaptor on row-major memory; it allocates nothing and cannot be resized.
template <class Element>
auto adapt(Element* data, const Shape& shape) {
  return xt::adapt(data, shape.size(), xt::no_ownership(),
                   xt::svector<std::size_t, Shape::max_rank>(shape.begin(), shape.end()));
}

/// True for containers that hold their elements one after the other in row-major order.
template <class Expression>
inline constexpr bool is_row_major = false;
template <class Storage, class Extents, class Tag>
inline constexpr bool is_row_major<xt::xarray_container<Storage, xt::layout_type::row_major, Extents, Tag>> = true;
template <class Storage, std::size_t rank, class Tag>
inline constexpr bool is_row_major<xt::xtensor_container<Storage, rank, xt::layout_type::row_major, Tag>> = true;

/// Evaluates an expression into memory of its shape.
template <class Element, class Expression>
void evaluate(const Expression& expression, Element* data) {
  if constexpr (is_row_major<Expression>) {  // most are, and xtensor's assignment takes long to compile
    std::transform(expression.storage().begin(), expression.storage().end(), data,
                   [](auto element) { return static_cast<Element>(element); });
  } else {
    auto target = adapt(data, Shape(expression.shape()));
    xt::noalias(target) = expression;
  }
}

template <class Expression>
using ElementOf = typename std::decay_t<Expression>::value_type;

}  // namespace detail

template <class T>
auto Var<T>::value() const {
  return detail::adapt(data(), shape());
}

template <class T>
auto Var<T>::grad() const {
  return detail::adapt(tape().zeroed_gradient(tape().gradient_owner(*this)), shape());
}

template <class T>
auto Parameter<T>::value() const {
  return detail::adapt(data(), shape());
}

template <class T>
auto Parameter<T>::write() {
  return detail::adapt(write_data(), shape());
}

template <class T>
auto Parameter<T>::grad() {
  return detail::adapt(grad_data(), shape());
}

template <class T>
template <class Expression>
Var<T> Tape<T>::input(const Expression& expression, bool requires_grad) {
  Shape shape;
  if constexpr (!std::is_arithmetic_v<Expression>) shape = Shape(expression.shape());
  T* value = value_memory(shape.size());
  if constexpr (std::is_arithmetic_v<Expression>)
    *value = static_cast<T>(expression);
  else
    detail::evaluate(expression, value);
  Node& node = push("input", shape);
  node.value = value;
  node.requires_grad = requires_grad;
  return handle(nodes_.size() - 1);
}

template <class T>
template <class Expression>
Mask Tape<T>::mask(const Expression& expression) {
  if constexpr (std::is_same_v<Expression, Mask>) {
    check(expression, "mask");
    return expression;
  } else {
    static_assert(std::is_same_v<detail::ElementOf<Expression>, bool>, "a mask is made from an expression of bool");
    std::uint8_t* data = nullptr;
    const Mask mask = constant("mask", Shape(expression.shape()), data);
    detail::evaluate(expression, data);
    return mask;
  }
}

template <class T>
template <class Expression>
Mask Tape<T>::lengths(const Expression& lengths, std::size_t time) {
  static_assert(std::is_integral_v<detail::ElementOf<Expression>>, "lengths are an integral expression");
  const Shape shape(lengths.shape());
  require<ShapeError>(shape.rank() == 1, "[lengths] expected lengths of shape (batch,), got {}", shape);
  std::uint8_t* data = nullptr;
  const Mask mask = constant("lengths", Shape{shape[0], time}, data);
  for (std::size_t row = 0; row < shape[0]; ++row) {
    const auto length = static_cast<long long>(lengths(row));
    require<ShapeError>(length >= 0 && length <= static_cast<long long>(time),
                        "[lengths] expected lengths from 0 to {}, got {} in row {}", time, length, row);
    std::fill_n(data + row * time, time, std::uint8_t{0});
    std::fill_n(data + row * time, length, std::uint8_t{1});
  }
  return mask;
}

template <class T>
template <class Expression>
Integers Tape<T>::integers(const Expression& expression) {
  if constexpr (std::is_same_v<Expression, Integers>) {
    check(expression, "integers");
    return expression;
  } else {
    static_assert(std::is_integral_v<detail::ElementOf<Expression>>,
                  "tokens, targets and indices are integral expressions");
    std::int64_t* data = nullptr;
    const Integers integers = constant("integers", Shape(expression.shape()), data);
    detail::evaluate(expression, data);
    return integers;
  }
}

template <class T>
template <class Expression>
void Tape<T>::backward(Var<T> y, const Expression& dy) {
  check(y, "backward");
  const Shape shape(dy.shape());
  require<ShapeError>(shape == y.shape(), "[backward] dy must have the shape {} of y, got {}", y.shape(), shape);
  // Evaluated before anything is released: dy may be made from a gradient that was retained.
  const auto upstream = workspace(shape.size());
  detail::evaluate(dy, upstream.data());
  begin_backward(y);
  auto grad = y.grad();
  xt::noalias(grad) += detail::adapt(upstream.data(), shape);
  run_backward(y);
}

}  // namespace xtape
