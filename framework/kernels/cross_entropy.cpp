#include <xtape/framework/kernels/cross_entropy.hpp>

#include <algorithm>
#include <cmath>

#include <xtape/framework/kernels/rows.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {

template <class T>
void cross_entropy_forward(std::size_t rows, std::size_t classes, const T* logits, const std::int64_t* targets,
                           std::int64_t ignore, double smoothing, double* loss, CrossEntropyRow<T>* saved) {
  for_each_row(rows, classes, [&](std::size_t row) {
    const T* x = logits + row * classes;
    loss[row] = 0;
    saved[row] = {};
    if (targets[row] == ignore) return;
    const T largest = max_of(x, classes);
    const Batch<T> m(largest);
    const double sum = sum_of<T>(
        classes, [&](std::size_t i, auto extent) { return cut(xsimd::exp(load(x + i, extent) - m), extent); });
    saved[row] = {largest, static_cast<T>(1 / sum)};
    const auto minus_log_p = [&](T logit) {
      return std::log(sum) - (static_cast<double>(logit) - static_cast<double>(largest));
    };
    loss[row] = (1 - smoothing) * minus_log_p(x[targets[row]]);
    if (smoothing != 0) {
      double all = 0;
      for (std::size_t i = 0; i < classes; ++i) all += minus_log_p(x[i]);
      loss[row] += smoothing * all / static_cast<double>(classes);
    }
  });
}

template <class T>
void cross_entropy_backward(std::size_t rows, std::size_t classes, const T* logits, const std::int64_t* targets,
                            std::int64_t ignore, double smoothing, const CrossEntropyRow<T>* saved, T scale, T* dlogits,
                            bool accumulate) {
  const Batch<T> spread(static_cast<T>(static_cast<double>(scale) * smoothing / static_cast<double>(classes)));
  for_each_row(rows, classes, [&](std::size_t row) {
    const T* x = logits + row * classes;
    T* to = dlogits + row * classes;
    if (targets[row] == ignore) {
      if (!accumulate) std::fill_n(to, classes, T(0));
      return;
    }
    const Batch<T> m(saved[row].largest), factor(saved[row].inverse_sum * scale);
    sweep<T>(classes, [&](std::size_t i, auto extent) {
      put(accumulate, to + i, xsimd::exp(load(x + i, extent) - m) * factor - spread, extent);
    });
    to[targets[row]] -= static_cast<T>(static_cast<double>(scale) * (1 - smoothing));
  });
}

template void cross_entropy_forward(std::size_t, std::size_t, const float*, const std::int64_t*, std::int64_t, double,
                                    double*, CrossEntropyRow<float>*);
template void cross_entropy_forward(std::size_t, std::size_t, const double*, const std::int64_t*, std::int64_t, double,
                                    double*, CrossEntropyRow<double>*);
template void cross_entropy_backward(std::size_t, std::size_t, const float*, const std::int64_t*, std::int64_t, double,
                                     const CrossEntropyRow<float>*, float, float*, bool);
template void cross_entropy_backward(std::size_t, std::size_t, const double*, const std::int64_t*, std::int64_t, double,
                                     const CrossEntropyRow<double>*, double, double*, bool);

}  // namespace xtape::kernels
