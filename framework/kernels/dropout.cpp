#include <xtape/framework/kernels/dropout.hpp>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/base/random.hpp>

namespace xtape::kernels {

template <class T>
void dropout(std::size_t n, double p, const DropoutKey& key, const T* x, T* y, bool accumulate) {
  const T scale = static_cast<T>(kept_factor(p));
  const std::uint64_t threshold = drop_below(p);
  parallel_chunks(n, 4096, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end;) {
      const std::uint64_t element = key.first_element + i;
      // A counter of 128 bits: step, ordinal of the op (below 2^24), and a block of four elements.
      const auto words = philox(key.seed, key.step, key.ordinal << 40 | element >> 2);
      for (std::size_t lane = element & 3; lane < 4 && i < end; ++lane, ++i) {
        const T value = words[lane] >= threshold ? x[i] * scale : T(0);
        y[i] = accumulate ? y[i] + value : value;
      }
    }
  });
}

template void dropout(std::size_t, double, const DropoutKey&, const float*, float*, bool);
template void dropout(std::size_t, double, const DropoutKey&, const double*, double*, bool);

}  // namespace xtape::kernels
