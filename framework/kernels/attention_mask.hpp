#pragma once
// Which keys a query sees: the one place that knows, for kernel files.

#include <algorithm>
#include <limits>

#include <xtape/framework/kernels/attention.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {

/// The mask of one head of one batch row.
template <class T>
class HeadMask {
 public:
  static constexpr T hidden = -std::numeric_limits<T>::infinity();  // the score of a key that is not seen

  HeadMask(const AttentionMask<T>& mask, const AttentionShape& shape, std::size_t b, std::size_t h)
      : mask_(mask), b_(b), h_(h), queries_(shape.queries), keys_(shape.keys) {}

  bool hides() const { return mask_.hides(); }
  /// Query i sees no key outside of begin(i) <= j < end(i). The last query sits on the last key.
  std::size_t begin(std::size_t i) const {
    if (mask_.window >= i + keys_ + 1) return 0;  // no_window, or it reaches further back than the first key
    const std::size_t first = i + keys_ + 1 - mask_.window;
    return std::min(end(i), first > queries_ ? first - queries_ : 0);
  }
  std::size_t end(std::size_t i) const {
    if (mask_.allow_queries != nullptr && mask_.allow_queries[b_ * queries_ + i] == 0) return 0;
    if (!mask_.causal) return keys_;
    return std::min(keys_, i + 1 + keys_ > queries_ ? i + 1 + keys_ - queries_ : 0);
  }
  bool sees(std::size_t i, std::size_t j) const {
    const std::uint8_t *of_keys = allowed_keys(), *of_pairs = allowed(i);
    const T* biases = bias(i);
    return begin(i) <= j && j < end(i) && (of_keys == nullptr || of_keys[j] != 0) &&
           (of_pairs == nullptr || of_pairs[j] != 0) && (biases == nullptr || biases[j] != hidden);
  }
  bool sees_any(std::size_t i) const {
    for (std::size_t j = begin(i); j < end(i); ++j)
      if (sees(i, j)) return true;
    return false;
  }

  /// To the scores of query i from begin(i) to end(i): adds the bias, and hides what is not seen.
  void apply(std::size_t i, T* scores) const {
    const std::size_t from = begin(i), to = end(i);
    if (const T* biases = bias(i)) {
      const Batch<T> minus_infinity(hidden);
      sweep<T>(to - from, [&](std::size_t j, auto extent) {
        const Batch<T> b = load(biases + from + j, extent), score = load(scores + from + j, extent);
        store(scores + from + j, xsimd::select(b == minus_infinity, b, score + b), extent);
      });
    }
    for (const std::uint8_t* allowed_by : {allowed_keys(), allowed(i)})
      for (std::size_t j = from; allowed_by != nullptr && j < to; ++j)
        if (allowed_by[j] == 0) scores[j] = hidden;
  }

 private:
  const std::uint8_t* allowed_keys() const {
    return mask_.allow_keys == nullptr ? nullptr : mask_.allow_keys + b_ * keys_;
  }
  const std::uint8_t* allowed(std::size_t i) const { return row(mask_.allow, i); }
  const T* bias(std::size_t i) const { return row(mask_.bias, i); }
  template <class Element>
  const Element* row(const PairTable<Element>& table, std::size_t i) const {
    return table.data == nullptr ? nullptr : table.data + table.offset(b_, h_, i);
  }

  const AttentionMask<T>& mask_;
  std::size_t b_, h_, queries_, keys_;
};

}  // namespace xtape::kernels
