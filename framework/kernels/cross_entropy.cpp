#include <xtape/framework/kernels/cross_entropy.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

#include <xtape/framework/kernels/rows.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {

template <class T>
void cross_entropy_forward(const CrossEntropy<T>& c, const T* logits, double* loss, CrossEntropyRow<T>* saved) {
  for_each_row(c.rows, c.classes, [&](std::size_t row) {
    const T* x = logits + row * c.classes;
    loss[row] = 0;
    saved[row] = {};
    if (c.targets[row] == c.ignore) return;
    const T largest = max_of(x, c.classes);
    const Batch<T> m(largest);
    const double sum = sum_of<T>(
        c.classes, [&](std::size_t i, auto extent) { return cut(xsimd::exp(load(x + i, extent) - m), extent); });
    saved[row] = {largest, static_cast<T>(1 / sum)};
    const auto weighted_minus_log_p = [&](std::size_t i) {
      const double weight = c.weight(i);
      return weight == 0 ? 0 : weight * (std::log(sum) - (static_cast<double>(x[i]) - static_cast<double>(largest)));
    };
    loss[row] = (1 - c.smoothing) * weighted_minus_log_p(static_cast<std::size_t>(c.targets[row]));
    if (c.smoothing != 0) {
      double all = 0;
      for (std::size_t i = 0; i < c.classes; ++i) all += weighted_minus_log_p(i);
      loss[row] += c.smoothing * all / static_cast<double>(c.classes);
    }
  });
}

template <class T>
void cross_entropy_backward(const CrossEntropy<T>& c, const T* logits, const CrossEntropyRow<T>* saved, const T* dy,
                            bool dy_of_each_row, double scale, T* dlogits, bool accumulate) {
  double weights = static_cast<double>(c.classes);
  if (c.weights != nullptr) weights = std::accumulate(c.weights, c.weights + c.classes, 0.0);
  const double smooth = c.smoothing / static_cast<double>(c.classes);
  for_each_row(c.rows, c.classes, [&](std::size_t row) {
    const T* x = logits + row * c.classes;
    T* to = dlogits + row * c.classes;
    if (c.targets[row] == c.ignore) {
      if (!accumulate) std::fill_n(to, c.classes, T(0));
      return;
    }
    const auto target = static_cast<std::size_t>(c.targets[row]);
    const double upstream = scale * static_cast<double>(dy[dy_of_each_row ? row : 0]);
    const double sharp = (1 - c.smoothing) * c.weight(target);
    const double mass = c.weights == nullptr ? 1 : sharp + smooth * weights;  // sum of q
    const Batch<T> m(saved[row].largest), factor(saved[row].inverse_sum * static_cast<T>(upstream * mass)),
        spread(static_cast<T>(upstream * smooth));
    sweep<T>(c.classes, [&](std::size_t i, auto extent) {
      const Batch<T> q = c.weights == nullptr ? spread : spread * load(c.weights + i, extent);
      put(accumulate, to + i, xsimd::exp(load(x + i, extent) - m) * factor - q, extent);
    });
    to[target] -= static_cast<T>(upstream * sharp);
  });
}

template void cross_entropy_forward(const CrossEntropy<float>&, const float*, double*, CrossEntropyRow<float>*);
template void cross_entropy_backward(const CrossEntropy<float>&, const float*, const CrossEntropyRow<float>*,
                                     const float*, bool, double, float*, bool);
template void cross_entropy_forward(const CrossEntropy<double>&, const double*, double*, CrossEntropyRow<double>*);
template void cross_entropy_backward(const CrossEntropy<double>&, const double*, const CrossEntropyRow<double>*,
                                     const double*, bool, double, double*, bool);

}  // namespace xtape::kernels
