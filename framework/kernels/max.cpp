#include <xtape/framework/kernels/max.hpp>

#include <algorithm>
#include <limits>

#include <xtape/framework/base/parallel.hpp>

namespace xtape::kernels {
namespace {

/// f(row, group) for the rows of the last kept axis: where a row of x begins, and where the group of results that it
/// belongs to. All rows of a group come to one thread.
template <class F>
void for_each_row_of_group(const Reduction& plan, F&& f) {
  const auto [k0, r0, k1, r1, k2] = plan.extent;
  const std::size_t chunk = std::max<std::size_t>(1, 8192 / std::max<std::size_t>(1, r0 * r1 * k2));
  parallel_chunks(k0 * k1, chunk, [&, k1 = k1, r0 = r0, r1 = r1, k2 = k2](std::size_t begin, std::size_t end) {
    for (std::size_t group = begin; group < end; ++group)
      for (std::size_t r = 0; r < r0 * r1; ++r)
        f((((group / k1 * r0 + r / r1) * k1 + group % k1) * r1 + r % r1) * k2, group * k2);
  });
}

template <class T>
bool is_largest(T x, T y) {
  return x == y || (x != x && y != y);
}

}  // namespace

template <class T>
void max_forward(const Reduction& plan, const T* x, T* y) {
  const std::size_t columns = plan.extent[4];
  std::fill_n(y, plan.extent[0] * plan.extent[2] * columns, -std::numeric_limits<T>::infinity());
  for_each_row_of_group(plan, [&](std::size_t row, std::size_t group) {
    for (std::size_t c = 0; c < columns; ++c) {
      const T candidate = x[row + c], largest = y[group + c];
      y[group + c] = candidate > largest || candidate != candidate ? candidate : largest;
    }
  });
}

template <class T>
void max_backward(const Reduction& plan, const T* x, const T* y, const T* dy, T* dx, bool accumulate, T* counts) {
  const std::size_t columns = plan.extent[4];
  std::fill_n(counts, plan.extent[0] * plan.extent[2] * columns, T(0));
  for_each_row_of_group(plan, [&](std::size_t row, std::size_t group) {
    for (std::size_t c = 0; c < columns; ++c) counts[group + c] += is_largest(x[row + c], y[group + c]) ? T(1) : T(0);
  });
  for_each_row_of_group(plan, [&](std::size_t row, std::size_t group) {
    for (std::size_t c = 0; c < columns; ++c) {
      const T share = is_largest(x[row + c], y[group + c]) ? dy[group + c] / counts[group + c] : T(0);
      dx[row + c] = accumulate ? dx[row + c] + share : share;
    }
  });
}

template void max_forward(const Reduction&, const float*, float*);
template void max_forward(const Reduction&, const double*, double*);
template void max_backward(const Reduction&, const float*, const float*, const float*, float*, bool, float*);
template void max_backward(const Reduction&, const double*, const double*, const double*, double*, bool, double*);

}  // namespace xtape::kernels
