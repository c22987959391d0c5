#pragma once
// Rows of a table by number.

#include <cstddef>
#include <cstdint>

namespace xtape::kernels {

/// y (count, width): row i is table[tokens[i]]
template <class T>
void embedding_forward(std::size_t count, std::size_t width, const std::int64_t* tokens, const T* table, T* y);

/// dtable[tokens[i]] += dy[i], in the order of i, for every token but `skip`; with accumulate = false the table
/// (entries, width) is cleared first.
template <class T>
void embedding_backward(std::size_t count, std::size_t width, std::size_t entries, const std::int64_t* tokens,
                        std::int64_t skip, const T* dy, T* dtable, bool accumulate);

}  // namespace xtape::kernels
