#include <xtape/framework/kernels/axis.hpp>

#include <algorithm>

#include <xtape/framework/kernels/rows.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {
namespace {

/// f(before, begin, end) in pieces that share out the places before and after the axis: what lies along it comes to one
/// thread, so repeated indices and running sums need no order between threads.
template <class F>
void for_each_lane(const Around& a, F&& f) {
  constexpr std::size_t widest = 64;
  const std::size_t pieces = (a.after + widest - 1) / widest;
  parallel_for(a.before * pieces, [&](std::size_t piece, std::size_t) {
    const std::size_t begin = piece % pieces * widest;
    f(piece / pieces, begin, std::min(begin + widest, a.after));
  });
}

template <class T>
void clear_unless(bool accumulate, const Around& a, T* dx) {
  if (accumulate) return;
  parallel_chunks(a.before * a.along * a.after, std::size_t{1} << 16,
                  [&](std::size_t begin, std::size_t end) { std::fill(dx + begin, dx + end, T(0)); });
}

}  // namespace

Around around(const Shape& shape, std::size_t axis) {
  Around a;
  a.along = shape[axis];
  for (std::size_t i = 0; i < axis; ++i) a.before *= shape[i];
  for (std::size_t i = axis + 1; i < shape.rank(); ++i) a.after *= shape[i];
  return a;
}

template <class T>
void cumsum_forward(const Around& a, const T* x, T* y) {
  for_each_lane(a, [&](std::size_t before, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) {
      double total = 0;
      for (std::size_t i = 0; i < a.along; ++i) {
        const std::size_t at = (before * a.along + i) * a.after + c;
        total += static_cast<double>(x[at]);
        y[at] = static_cast<T>(total);
      }
    }
  });
}

template <class T>
void cumsum_backward(const Around& a, const T* dy, T* dx, bool accumulate) {
  for_each_lane(a, [&](std::size_t before, std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) {
      double total = 0;
      for (std::size_t i = a.along; i-- > 0;) {
        const std::size_t at = (before * a.along + i) * a.after + c;
        total += static_cast<double>(dy[at]);
        dx[at] = accumulate ? dx[at] + static_cast<T>(total) : static_cast<T>(total);
      }
    }
  });
}

template <class T>
void index_select_forward(const Around& a, std::size_t count, const std::int64_t* indices, const T* x, T* y) {
  for_each_row(a.before * count, a.after, [&](std::size_t row) {
    const std::size_t from = row / count * a.along + static_cast<std::size_t>(indices[row % count]);
    std::copy_n(x + from * a.after, a.after, y + row * a.after);
  });
}

template <class T>
void index_select_backward(const Around& a, std::size_t count, const std::int64_t* indices, std::int64_t skip,
                           const T* dy, T* dx, bool accumulate) {
  clear_unless(accumulate, a, dx);
  for_each_lane(a, [&](std::size_t before, std::size_t begin, std::size_t end) {
    for (std::size_t i = 0; i < count; ++i) {
      if (indices[i] == skip) continue;
      const T* from = dy + (before * count + i) * a.after + begin;
      T* to = dx + (before * a.along + static_cast<std::size_t>(indices[i])) * a.after + begin;
      sweep<T>(end - begin, [&](std::size_t c, auto extent) { put<true>(to + c, load(from + c, extent), extent); });
    }
  });
}

template <class T>
void gather_forward(const Around& a, std::size_t count, const std::int64_t* indices, const T* x, T* y) {
  for_each_lane(a, [&](std::size_t before, std::size_t begin, std::size_t end) {
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t c = begin; c < end; ++c) {
        const std::size_t at = (before * count + i) * a.after + c;
        y[at] = x[(before * a.along + static_cast<std::size_t>(indices[at])) * a.after + c];
      }
  });
}

template <class T>
void gather_backward(const Around& a, std::size_t count, const std::int64_t* indices, const T* dy, T* dx,
                     bool accumulate) {
  clear_unless(accumulate, a, dx);
  for_each_lane(a, [&](std::size_t before, std::size_t begin, std::size_t end) {
    for (std::size_t i = 0; i < count; ++i)
      for (std::size_t c = begin; c < end; ++c) {
        const std::size_t at = (before * count + i) * a.after + c;
        dx[(before * a.along + static_cast<std::size_t>(indices[at])) * a.after + c] += dy[at];
      }
  });
}

template void cumsum_forward(const Around&, const float*, float*);
template void cumsum_backward(const Around&, const float*, float*, bool);
template void index_select_forward(const Around&, std::size_t, const std::int64_t*, const float*, float*);
template void index_select_backward(const Around&, std::size_t, const std::int64_t*, std::int64_t, const float*, float*,
                                    bool);
template void gather_forward(const Around&, std::size_t, const std::int64_t*, const float*, float*);
template void gather_backward(const Around&, std::size_t, const std::int64_t*, const float*, float*, bool);
template void cumsum_forward(const Around&, const double*, double*);
template void cumsum_backward(const Around&, const double*, double*, bool);
template void index_select_forward(const Around&, std::size_t, const std::int64_t*, const double*, double*);
template void index_select_backward(const Around&, std::size_t, const std::int64_t*, std::int64_t, const double*,
                                    double*, bool);
template void gather_forward(const Around&, std::size_t, const std::int64_t*, const double*, double*);
template void gather_backward(const Around&, std::size_t, const std::int64_t*, const double*, double*, bool);

}  // namespace xtape::kernels
