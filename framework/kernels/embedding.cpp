#include <xtape/framework/kernels/embedding.hpp>

#include <algorithm>

#include <xtape/framework/kernels/rows.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {

template <class T>
void embedding_forward(std::size_t count, std::size_t width, const std::int64_t* tokens, const T* table, T* y) {
  for_each_row(count, width, [&](std::size_t i) {
    std::copy_n(table + static_cast<std::size_t>(tokens[i]) * width, width, y + i * width);
  });
}

template <class T>
void embedding_backward(std::size_t count, std::size_t width, std::size_t entries, const std::int64_t* tokens,
                        std::int64_t skip, const T* dy, T* dtable, bool accumulate) {
  if (!accumulate) std::fill_n(dtable, entries * width, T(0));
  // Tokens repeat, so threads share out the columns, not the tokens.
  parallel_chunks(width, 64, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = 0; i < count; ++i) {
      if (tokens[i] == skip) continue;
      const T* from = dy + i * width + begin;
      T* to = dtable + static_cast<std::size_t>(tokens[i]) * width + begin;
      sweep<T>(end - begin, [&](std::size_t c, auto extent) { put<true>(to + c, load(from + c, extent), extent); });
    }
  });
}

template void embedding_forward(std::size_t, std::size_t, const std::int64_t*, const float*, float*);
template void embedding_forward(std::size_t, std::size_t, const std::int64_t*, const double*, double*);
template void embedding_backward(std::size_t, std::size_t, std::size_t, const std::int64_t*, std::int64_t, const float*,
                                 float*, bool);
template void embedding_backward(std::size_t, std::size_t, std::size_t, const std::int64_t*, std::int64_t,
                                 const double*, double*, bool);

}  // namespace xtape::kernels
