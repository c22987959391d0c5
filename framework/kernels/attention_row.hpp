#pragma once
// One query: from the products with its keys to their weights, and back from the gradients of the weights to those of
// the scores. For kernel files that keep the weights.

#include <cmath>
#include <type_traits>

#include <xtape/framework/kernels/attention_strip.hpp>

namespace xtape::kernels {

/// The scores of the keys of a span: scale q k^T where the query may look, -inf elsewhere.
template <class T>
class VisibleScores {
 public:
  VisibleScores(const Head<T>& head, std::size_t i, const Span<T>& span, const T* products)
      : products_(products),
        scale_(static_cast<T>(head.s.scale)),
        begin_(static_cast<T>(head.mask.begin(i) - span.first)),
        end_(static_cast<T>(head.mask.end(i) - span.first)) {}
  template <class Extent>
  Batch<T> operator()(std::size_t j, Extent extent) const {
    const Batch<T> place = first_numbers<T>() + Batch<T>(static_cast<T>(j)), hidden(HeadMask<T>::hidden);
    const Batch<T> seen = xsimd::select(place >= begin_ && place < end_, load(products_ + j, extent) * scale_, hidden);
    return cut(seen, extent, HeadMask<T>::hidden);
  }

 private:
  const T* products_;
  Batch<T> scale_, begin_, end_;
};

/// Calls f(vectors), a constant, if n numbers fit into so few vectors that a row stays in registers; else gives false.
template <class T, class F>
bool in_registers(std::size_t n, F&& f) {
  switch ((n + lanes<T> - 1) / lanes<T>) {
    case 1:
      return f(std::integral_constant<std::size_t, 1>());
    case 2:
      return f(std::integral_constant<std::size_t, 2>());
    case 3:
      return f(std::integral_constant<std::size_t, 3>());
    case 4:
      return f(std::integral_constant<std::size_t, 4>());
    default:
      return false;
  }
}
/// f(k, i, extent) for each vector k of n numbers, which begins with number i.
template <class T, std::size_t vectors, class F>
[[gnu::always_inline]] inline void unrolled(std::size_t n, F&& f) {
#pragma GCC unroll 4
  for (std::size_t k = 0; k + 1 < vectors; ++k) f(k, k * lanes<T>, Whole{});
  constexpr std::size_t last = vectors - 1;
  if (n == vectors * lanes<T>)
    f(last, last * lanes<T>, Whole{});
  else
    f(last, last * lanes<T>, Part{n - last * lanes<T>});
}

/// Softmax of n scores, and its log-sum-exp if that is wanted. Gives false, and writes nothing, if all are hidden.
template <class T, std::size_t vectors>
bool softmax_in_registers(const VisibleScores<T>& scores, std::size_t n, T* weights, T* log_sum_exp) {
  constexpr T hidden = HeadMask<T>::hidden;
  Batch<T> row[vectors], largest_lanes(hidden), sums(T(0));
  unrolled<T, vectors>(n, [&](std::size_t k, std::size_t i, auto extent) {
    row[k] = scores(i, extent);
    largest_lanes = xsimd::max(largest_lanes, row[k]);
  });
  const T largest = max_of(largest_lanes);
  if (largest == hidden) return false;
  const Batch<T> m(largest), minus_infinity(hidden), zero(T(0));
  unrolled<T, vectors>(n, [&](std::size_t k, std::size_t, auto) {
    row[k] = xsimd::select(row[k] == minus_infinity, zero, xsimd::exp(row[k] - m));
    sums += row[k];
  });
  const double sum = static_cast<double>(xsimd::hadd(sums));
  const Batch<T> inverse(static_cast<T>(1 / sum));
  unrolled<T, vectors>(
      n, [&](std::size_t k, std::size_t i, auto extent) { store(weights + i, row[k] * inverse, extent); });
  if (log_sum_exp != nullptr) *log_sum_exp = largest + static_cast<T>(std::log(sum));
  return true;
}

/// Products q k^T of query i, in place, to weights. Writes the log-sum-exp if it is wanted.
template <class T>
void softmax_visible(const Head<T>& head, std::size_t i, T* row, T* log_sum_exp) {
  constexpr T hidden = HeadMask<T>::hidden;
  const Span<T> span(head, i);
  T* const products = row + span.first;
  const VisibleScores<T> visible(head, i, span, products);
  span.clear_outside(row, head.s.keys);
  if (!head.mask.has_tables() && in_registers<T>(span.size(), [&](auto vectors) {
        return softmax_in_registers<T, vectors>(visible, span.size(), products, log_sum_exp);
      }))
    return;

  // A row that fits is worked on elsewhere, where it can be padded to whole vectors.
  constexpr std::size_t most = 512;
  alignas(64) T local[most];
  T* const scores = span.size() <= most ? local : products;
  const std::size_t n = span.size() <= most ? (span.size() + lanes<T> - 1) / lanes<T> * lanes<T> : span.size();
  Batch<T> largest_lanes(hidden);
  sweep<T>(span.size(), [&](std::size_t j, auto extent) {
    const Batch<T> score = visible(j, extent);
    if (scores == local)
      store(scores + j, score, Whole());
    else
      store(scores + j, score, extent);
    largest_lanes = xsimd::max(largest_lanes, score);
  });
  T largest = max_of(largest_lanes);
  if (head.mask.has_tables()) {
    head.mask.apply_tables(i, head.mask.begin(i), head.mask.end(i), scores - span.first);
    largest = max_of(scores, n);
  }
  if (largest == hidden && !head.mask.sees_any(i)) {
    std::fill_n(row, head.s.keys, T(0));
    if (log_sum_exp != nullptr) *log_sum_exp = hidden;
    return;
  }
  const double sum = exponentials(scores, n, largest, T(1));
  const Batch<T> inverse(static_cast<T>(1 / sum));
  sweep<T>(span.size(), [&](std::size_t j, auto extent) {
    store(products + j, (scores == local ? load(scores + j, Whole()) : load(scores + j, extent)) * inverse, extent);
  });
  if (log_sum_exp != nullptr) *log_sum_exp = largest + static_cast<T>(std::log(sum));
}

/// weight x, and 0 where the weight is 0, whatever x.
template <class T>
Batch<T> weighted(Batch<T> weight, Batch<T> x) {
  const Batch<T> zero(T(0));
  return xsimd::select(weight == zero, zero, weight * x);
}

template <class T, std::size_t vectors>
bool scores_gradient_in_registers(std::size_t n, const T* weights, T dlse, T factor, T* gradients) {
  Batch<T> weight[vectors], gradient[vectors], sums(T(0));
  unrolled<T, vectors>(n, [&](std::size_t k, std::size_t i, auto extent) {
    weight[k] = load(weights + i, extent), gradient[k] = load(gradients + i, extent);
    sums += weighted(weight[k], gradient[k]);
  });
  const Batch<T> mean(xsimd::hadd(sums) - dlse);
  unrolled<T, vectors>(n, [&](std::size_t k, std::size_t i, auto extent) {
    store(gradients + i, weighted(weight[k], gradient[k] - mean) * Batch<T>(factor), extent);
  });
  return true;
}

/// factor dS from dP, in place, for query i.
template <class T>
void scores_gradient(const Head<T>& head, std::size_t i, const T* p, T dlse, T factor, T* dp) {
  const Span<T> span(head, i);
  const T* weights = p + span.first;
  T* gradients = dp + span.first;
  span.clear_outside(dp, head.s.keys);
  if (in_registers<T>(span.size(), [&](auto vectors) {
        return scores_gradient_in_registers<T, vectors>(span.size(), weights, dlse, factor, gradients);
      }))
    return;
  const Batch<T> mean(static_cast<T>(sum_of<T>(span.size(),
                                               [&](std::size_t j, auto extent) {
                                                 return weighted(load(weights + j, extent),
                                                                 load(gradients + j, extent));
                                               })) -
                      dlse);
  sweep<T>(span.size(), [&](std::size_t j, auto extent) {
    const Batch<T> gradient = load(gradients + j, extent) - mean;
    store(gradients + j, weighted(load(weights + j, extent), gradient) * Batch<T>(factor), extent);
  });
}

}  // namespace xtape::kernels
