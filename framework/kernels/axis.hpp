#pragma once
// Work along one axis of an array.

#include <cstddef>
#include <cstdint>

#include <xtape/framework/base/shape.hpp>

namespace xtape::kernels {

/// A row-major array seen as (before, along, after) around one axis.
struct Around {
  std::size_t before = 1, along = 1, after = 1;
};
Around around(const Shape& shape, std::size_t axis);

/// y[i] = x[0] + ... + x[i]
template <class T>
void cumsum_forward(const Around& a, const T* x, T* y);
/// dx[i] = or += dy[i] + ... + dy[last]
template <class T>
void cumsum_backward(const Around& a, const T* dy, T* dx, bool accumulate);

/// y[i] = x[indices[i]] for i below count: whole slices of the axis, `a` describing x.
template <class T>
void index_select_forward(const Around& a, std::size_t count, const std::int64_t* indices, const T* x, T* y);
/// dx[indices[i]] += dy[i], except where the index is `skip` (-1: nowhere); what was never selected gets 0.
template <class T>
void index_select_backward(const Around& a, std::size_t count, const std::int64_t* indices, std::int64_t skip,
                           const T* dy, T* dx, bool accumulate);

/// y[i] = x[indices[i]] for each place before and after the axis by itself; indices and y have `count` places along it.
template <class T>
void gather_forward(const Around& a, std::size_t count, const std::int64_t* indices, const T* x, T* y);
/// dx[indices[i]] += dy[i]
template <class T>
void gather_backward(const Around& a, std::size_t count, const std::int64_t* indices, const T* dy, T* dx,
                     bool accumulate);

}  // namespace xtape::kernels
