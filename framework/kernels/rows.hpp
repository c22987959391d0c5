#pragma once
// Work on rows in pieces whose sizes do not depend on the number of threads.

#include <algorithm>
#include <cstddef>

#include <xtape/framework/base/parallel.hpp>

namespace xtape::kernels {

/// f(row) for every row.
template <class F>
void for_each_row(std::size_t rows, std::size_t columns, F&& f) {
  const std::size_t chunk = std::max<std::size_t>(1, 8192 / std::max<std::size_t>(1, columns));
  parallel_chunks(rows, chunk, [&](std::size_t begin, std::size_t end) {
    for (std::size_t row = begin; row < end; ++row) f(row);
  });
}

/// Rows whose terms are added up by one thread before the pieces are added in order (see column_sums.hpp).
inline constexpr std::size_t rows_per_piece = 64;
inline std::size_t column_sum_pieces(std::size_t rows) { return (rows + rows_per_piece - 1) / rows_per_piece; }

}  // namespace xtape::kernels
