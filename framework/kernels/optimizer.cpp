#include <xtape/framework/kernels/optimizer.hpp>

#include <cmath>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {
template <class T>
void sgd_update(const SgdStep& step, std::size_t n, const T* g, T* w, T* b) {
  const Batch<T> rate(static_cast<T>(step.learning_rate)), momentum(static_cast<T>(step.momentum)),
      decay(static_cast<T>(step.weight_decay)), factor(static_cast<T>(step.gradient_factor));
  sweep<T>(n, [&](std::size_t i, auto extent) {
    Batch<T> direction = factor * load(g + i, extent) + decay * load(w + i, extent);
    if (b != nullptr) {
      const Batch<T> sum = momentum * load(b + i, extent) + direction;
      store(b + i, sum, extent);
      direction = step.nesterov ? direction + momentum * sum : sum;
    }
    store(w + i, load(w + i, extent) - rate * direction, extent);
  });
}

template <class T>
void adam_update(const AdamStep& step, std::size_t n, const T* g, T* w, T* m, T* v) {
  const auto constant = [](double x) { return Batch<T>(static_cast<T>(x)); };
  const Batch<T> keep = constant(1 - step.learning_rate * step.decoupled_decay), l2_decay = constant(step.l2_decay);
  const Batch<T> beta1 = constant(step.beta1), rest1 = constant(1 - step.beta1);
  const Batch<T> beta2 = constant(step.beta2), rest2 = constant(1 - step.beta2);
  const Batch<T> eps = constant(step.eps), rate = constant(step.learning_rate / step.correction1);
  const Batch<T> root_correction = constant(1 / std::sqrt(step.correction2));
  const Batch<T> factor = constant(step.gradient_factor);
  sweep<T>(n, [&](std::size_t i, auto extent) {
    __builtin_prefetch(w + i + 1024, 1);  // other cores have read it: their copies go early
    const Batch<T> weight = load(w + i, extent), gradient = factor * load(g + i, extent) + l2_decay * weight;
    const Batch<T> first = beta1 * load(m + i, extent) + rest1 * gradient;
    const Batch<T> second = beta2 * load(v + i, extent) + rest2 * gradient * gradient;
    store(m + i, first, extent);
    store(v + i, second, extent);
    store(w + i, keep * weight - rate * first / (xsimd::sqrt(second) * root_correction + eps), extent);
  });
}

template <class T>
void approach(double rate, std::size_t n, const T* x, T* average) {
  const Batch<T> step(static_cast<T>(rate));
  parallel_chunks(n, 8192, [&](std::size_t begin, std::size_t end) {
    sweep<T>(end - begin, [&](std::size_t at, auto extent) {
      const std::size_t i = begin + at;
      const Batch<T> before = load(average + i, extent);
      store(average + i, before + step * (load(x + i, extent) - before), extent);
    });
  });
}

template <class T>
bool finite(const T* x, std::size_t n) {
  return all_finite(x, n);
}

template <class T>
double sum_of_squares(const T* x, std::size_t n) {
  constexpr std::size_t sums = 8;
  double sum[sums] = {};
  std::size_t i = 0;
  for (; i + sums <= n; i += sums)
    for (std::size_t k = 0; k < sums; ++k) sum[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
  for (; i < n; ++i) sum[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

template <class T>
void scale_in_place(T* x, std::size_t n, T factor) {
  scale_row(x, n, factor);
}

template void sgd_update(const SgdStep&, std::size_t, const float*, float*, float*);
template void sgd_update(const SgdStep&, std::size_t, const double*, double*, double*);
template void adam_update(const AdamStep&, std::size_t, const float*, float*, float*, float*);
template void adam_update(const AdamStep&, std::size_t, const double*, double*, double*, double*);
template void approach(double, std::size_t, const float*, float*);
template void approach(double, std::size_t, const double*, double*);
template bool finite(const float*, std::size_t);
template bool finite(const double*, std::size_t);
template double sum_of_squares(const float*, std::size_t);
template double sum_of_squares(const double*, std::size_t);
template void scale_in_place(float*, std::size_t, float);
template void scale_in_place(double*, std::size_t, double);

}  // namespace xtape::kernels
