#pragma once
// Gradients of gains and biases: sums over rows, for kernel files only.

#include <xtape/framework/kernels/rows.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {

/// sums[c] = or += the pieces' partial sums, `distance` numbers apart, added in order.
template <class T>
void add_pieces(std::size_t pieces, std::size_t columns, const T* partial, std::size_t distance, T* sums,
                bool accumulate) {
  for (std::size_t c = 0; c < columns; ++c) {
    double total = accumulate ? static_cast<double>(sums[c]) : 0;
    for (std::size_t piece = 0; piece < pieces; ++piece) total += static_cast<double>(partial[piece * distance + c]);
    sums[c] = static_cast<T>(total);
  }
}

/// sums[i] = or += the sum over all rows of term(row, i, extent). `partial` holds column_sum_pieces(rows) * columns
/// numbers.
template <class T, class Term>
void column_sums(std::size_t rows, std::size_t columns, T* sums, bool accumulate, T* partial, Term term) {
  parallel_chunks(rows, rows_per_piece, [&](std::size_t begin, std::size_t end) {
    T* piece = partial + begin / rows_per_piece * columns;
    for (std::size_t row = begin; row < end; ++row)
      sweep<T>(columns, [&](std::size_t i, auto extent) { put(row > begin, piece + i, term(row, i, extent), extent); });
  });
  add_pieces(column_sum_pieces(rows), columns, partial, columns, sums, accumulate);
}

}  // namespace xtape::kernels
