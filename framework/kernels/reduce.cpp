#include <xtape/framework/kernels/reduce.hpp>

#include <algorithm>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {
namespace {

/// Columns of one register group; their sums run over blocks of rows in T and from block to block in double.
template <class T>
constexpr std::size_t group = 4 * lanes<T>;
constexpr std::size_t rows_per_block = 64;

/// y[c] = or += scale * sum over r of x[r * stride + c], for `width` <= group columns.
template <class T, class RowAt>
void sum_columns(RowAt row_at, std::size_t rows, std::size_t width, T* y, T scale, bool accumulate) {
  std::array<double, group<T>> total{};
  alignas(64) std::array<T, group<T>> block_sum;
  for (std::size_t begin = 0; begin < rows; begin += rows_per_block) {
    const std::size_t end = std::min(begin + rows_per_block, rows);
    if (width == group<T>) {
      Batch<T> s[4] = {Batch<T>(T(0)), Batch<T>(T(0)), Batch<T>(T(0)), Batch<T>(T(0))};
      for (std::size_t r = begin; r < end; ++r)
        for (std::size_t k = 0; k < 4; ++k) s[k] += load(row_at(r) + k * lanes<T>, Whole{});
      for (std::size_t k = 0; k < 4; ++k) s[k].store_aligned(block_sum.data() + k * lanes<T>);
    } else {
      block_sum.fill(T(0));
      for (std::size_t r = begin; r < end; ++r) {
        const T* row = row_at(r);
        for (std::size_t c = 0; c < width; ++c) block_sum[c] += row[c];
      }
    }
    for (std::size_t c = 0; c < width; ++c) total[c] += static_cast<double>(block_sum[c]);
  }
  for (std::size_t c = 0; c < width; ++c) {
    const T sum = static_cast<T>(static_cast<double>(scale) * total[c]);
    y[c] = accumulate ? y[c] + sum : sum;
  }
}

}  // namespace

Reduction plan_reduction(const Shape& x, const std::array<bool, Shape::max_rank>& summed) {
  Reduction plan{{1, 1, 1, 1, 1}};
  std::size_t at = 4;  // even: kept, odd: summed
  for (std::size_t axis = x.rank(); axis-- > 0;) {
    if (x[axis] == 1) continue;
    if ((at % 2 == 1) != summed[axis]) --at;
    plan.extent[at] *= x[axis];
  }
  return plan;
}

Reduction plan_sum_to(const Shape& broadcast, const Shape& operand) {
  std::array<bool, Shape::max_rank> summed{};
  const std::size_t offset = broadcast.rank() - operand.rank();
  for (std::size_t axis = 0; axis < broadcast.rank(); ++axis)
    summed[axis] = axis < offset || (operand[axis - offset] == 1 && broadcast[axis] != 1);
  return plan_reduction(broadcast, summed);
}

template <class T>
void sum_forward(const Reduction& plan, const T* x, T* y, T scale, bool accumulate) {
  const auto [k0, r0, k1, r1, k2] = plan.extent;
  if (k2 == 1) {  // the last axis is summed
    const std::size_t chunk = std::max<std::size_t>(1, 8192 / std::max<std::size_t>(1, r0 * r1));
    parallel_chunks(k0 * k1, chunk, [&, k1 = k1, r0 = r0, r1 = r1](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        double total = 0;
        for (std::size_t j = 0; j < r0; ++j) {
          const T* row = x + ((i / k1 * r0 + j) * k1 + i % k1) * r1;
          total += sum_of<T>(r1, [&](std::size_t c, auto extent) { return load(row + c, extent); });
        }
        const T sum = static_cast<T>(static_cast<double>(scale) * total);
        y[i] = accumulate ? y[i] + sum : sum;
      }
    });
    return;
  }
  const std::size_t groups = (k2 + group<T> - 1) / group<T>;
  const std::size_t chunk = std::max<std::size_t>(1, 8192 / std::max<std::size_t>(1, r0 * r1 * std::min(k2, group<T>)));
  parallel_chunks(k0 * k1 * groups, chunk, [&, k1 = k1, r0 = r0, r1 = r1, k2 = k2](std::size_t begin, std::size_t end) {
    for (std::size_t item = begin; item < end; ++item) {
      const std::size_t i = item / groups, column = item % groups * group<T>;
      const auto row_at = [&](std::size_t r) {
        return x + (((i / k1 * r0 + r / r1) * k1 + i % k1) * r1 + r % r1) * k2 + column;
      };
      sum_columns(row_at, r0 * r1, std::min(group<T>, k2 - column), y + i * k2 + column, scale, accumulate);
    }
  });
}

template <class T>
void sum_backward(const Reduction& plan, const T* dy, T* dx, T scale, bool accumulate) {
  const auto [k0, r0, k1, r1, k2] = plan.extent;
  const auto spread = [&](auto value_at, std::size_t n, T* row) {
    sweep<T>(n, [&](std::size_t i, auto extent) {
      const Batch<T> value = Batch<T>(scale) * value_at(i, extent);
      put(accumulate, row + i, value, extent);
    });
  };
  const std::size_t run = k2 == 1 ? r1 : k2;  // numbers in a row of dx that come of one number, or of one row of dy
  parallel_chunks(k0 * r0 * k1 * r1 * k2, 8192,
                  [&, k1 = k1, r0 = r0, r1 = r1, k2 = k2](std::size_t begin, std::size_t end) {
                    for (std::size_t i = begin; i < end;) {
                      const std::size_t row = i / (r1 * k2), at = i % run, n = std::min(run - at, end - i);
                      const T* source = dy + (row / k1 / r0 * k1 + row % k1) * k2;
                      if (k2 == 1)
                        spread([value = Batch<T>(*source)](std::size_t, auto) { return value; }, n, dx + i);
                      else
                        spread([&](std::size_t c, auto extent) { return load(source + at + c, extent); }, n, dx + i);
                      i += n;
                    }
                  });
}

template void sum_forward(const Reduction&, const float*, float*, float, bool);
template void sum_forward(const Reduction&, const double*, double*, double, bool);
template void sum_backward(const Reduction&, const float*, float*, float, bool);
template void sum_backward(const Reduction&, const double*, double*, double, bool);

}  // namespace xtape::kernels
