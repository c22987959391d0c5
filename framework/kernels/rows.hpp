#pragma once
// Work on rows in pieces of about 8192 numbers, for kernel files.

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

}  // namespace xtape::kernels
