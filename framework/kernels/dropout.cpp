#include <xtape/framework/kernels/dropout.hpp>

#include <algorithm>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/philox.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {

template <class T>
void dropout(std::size_t n, double p, const DropoutKey& key, const T* x, T* y, bool accumulate) {
  const Batch<T> scale(static_cast<T>(kept_factor(p)));
  const std::uint64_t threshold = drop_below(p);
  const bool keeps_any = threshold <= 0xFFFFFFFFu;
  const std::uint32_t first_kept = static_cast<std::uint32_t>(threshold);
  parallel_chunks(n, 4096, [&](std::size_t begin, std::size_t end) {
    alignas(64) std::uint32_t words[philox_words];
    alignas(64) T kept[philox_words];
    for (std::size_t i = begin; i < end;) {
      // A counter of 128 bits: step, ordinal of the op (below 2^24), and a block of four elements.
      const std::uint64_t element = key.first_element + i;
      philox_stretch(key.seed, key.step, key.ordinal << 40 | element >> 2, words);
      for (std::size_t k = 0; k < philox_words; ++k) kept[k] = static_cast<T>((words[k] >= first_kept) & keeps_any);
      const std::size_t first = element & 3, count = std::min(philox_words - first, end - i);
      sweep<T>(count, [&](std::size_t k, auto extent) {
        const Batch<T> value = load(x + i + k, extent) * scale;
        put(accumulate, y + i + k,
            xsimd::select(load(kept + first + k, extent) == Batch<T>(T(0)), Batch<T>(T(0)), value), extent);
      });
      i += count;
    }
  });
}

template void dropout(std::size_t, double, const DropoutKey&, const float*, float*, bool);
template void dropout(std::size_t, double, const DropoutKey&, const double*, double*, bool);

}  // namespace xtape::kernels
