#include <xtape/framework/kernels/where.hpp>

#include <algorithm>

#include <xtape/framework/base/parallel.hpp>

namespace xtape::kernels {
namespace {

/// use(left, right, at) for the runs of the result's last axis: where both operands and the result begin.
template <class F>
void for_each_row_of(const Broadcast& plan, F&& use) {
  const auto& extent = plan.extent;
  const std::size_t rows = extent[0] * extent[1] * extent[2], columns = extent[3];
  parallel_chunks(rows, std::max<std::size_t>(1, 8192 / std::max<std::size_t>(1, columns)),
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t row = begin; row < end; ++row) {
                      const std::size_t i2 = row % extent[2], i1 = row / extent[2] % extent[1],
                                        i0 = row / extent[2] / extent[1];
                      use(i0 * plan.left[0] + i1 * plan.left[1] + i2 * plan.left[2],
                          i0 * plan.right[0] + i1 * plan.right[1] + i2 * plan.right[2], row * columns);
                    }
                  });
}

}  // namespace

void repeat_mask(const Broadcast& plan, const std::uint8_t* condition, std::uint8_t* chosen) {
  for_each_row_of(plan, [&](std::size_t left, std::size_t, std::size_t at) {
    for (std::size_t i = 0; i < plan.extent[3]; ++i) chosen[at + i] = condition[left + i * plan.left[3]];
  });
}

template <class T>
void where_forward(const Broadcast& plan, const std::uint8_t* chosen, const T* a, const T* b, T* y) {
  for_each_row_of(plan, [&](std::size_t left, std::size_t right, std::size_t at) {
    for (std::size_t i = 0; i < plan.extent[3]; ++i)
      y[at + i] = chosen[at + i] != 0 ? a[left + i * plan.left[3]] : b[right + i * plan.right[3]];
  });
}

template <class T>
void where_backward(const std::uint8_t* chosen, std::uint8_t side, const T* dy, T* g, bool accumulate, std::size_t n) {
  parallel_chunks(n, 8192, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const T picked = chosen[i] == side ? dy[i] : T(0);
      g[i] = accumulate ? g[i] + picked : picked;
    }
  });
}

template void where_forward(const Broadcast&, const std::uint8_t*, const float*, const float*, float*);
template void where_forward(const Broadcast&, const std::uint8_t*, const double*, const double*, double*);
template void where_backward(const std::uint8_t*, std::uint8_t, const float*, float*, bool, std::size_t);
template void where_backward(const std::uint8_t*, std::uint8_t, const double*, double*, bool, std::size_t);

}  // namespace xtape::kernels
