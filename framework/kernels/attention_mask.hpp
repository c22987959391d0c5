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
  /// True if begin and end may differ from query to query.
  bool narrows() const { return mask_.causal || mask_.window != mask_.no_window || mask_.allow_queries != nullptr; }
  /// Query i sees no key outside of begin(i) <= j < end(i).
  std::size_t begin(std::size_t i) const {
    const std::size_t reached = keys_to(i);
    return mask_.window >= reached ? 0 : std::min(end(i), reached - mask_.window);
  }
  std::size_t end(std::size_t i) const {
    if (mask_.allow_queries != nullptr && mask_.allow_queries[b_ * queries_ + i] == 0) return 0;
    return mask_.causal ? std::min(keys_, keys_to(i)) : keys_;
  }
  /// True if begin and end do not fall from one query to the next.
  bool ascends() const { return mask_.allow_queries == nullptr && mask_.places == nullptr; }
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

  /// To the scores of query i and the keys first <= j < last: adds the bias, and hides what is not seen.
  void apply(std::size_t i, std::size_t first, std::size_t last, T* scores) const {
    const std::size_t from = std::clamp(begin(i), first, last), to = std::clamp(end(i), from, last);
    T* row = scores - first;  // row[j] belongs to key j
    std::fill(row + first, row + from, hidden);
    std::fill(row + to, row + last, hidden);
    apply_tables(i, from, to, row);
  }
  /// Whether something else than the range of keys hides some.
  bool has_tables() const {
    return mask_.allow_keys != nullptr || mask_.allow.data != nullptr || mask_.bias.data != nullptr;
  }
  /// What they do to the scores of query i and the keys from <= j < to; row[j] belongs to key j.
  void apply_tables(std::size_t i, std::size_t from, std::size_t to, T* row) const {
    if (const T* biases = bias(i)) {
      const Batch<T> minus_infinity(hidden);
      sweep<T>(to - from, [&](std::size_t j, auto extent) {
        const Batch<T> b = load(biases + from + j, extent), score = load(row + from + j, extent);
        store(row + from + j, xsimd::select(b == minus_infinity, b, score + b), extent);
      });
    }
    for (const std::uint8_t* allowed_by : {allowed_keys(), allowed(i)})
      for (std::size_t j = from; allowed_by != nullptr && j < to; ++j)
        if (allowed_by[j] == 0) row[j] = hidden;
  }

  /// How much of a tile of queries and keys is seen. A bias counts as hiding some, since it may.
  enum class Seen { nothing, some, all };
  Seen seen(std::size_t first_query, std::size_t last_query, std::size_t first_key, std::size_t last_key) const {
    bool any = false, all = mask_.allow.data == nullptr && mask_.bias.data == nullptr;
    for (std::size_t i = first_query; i < last_query; ++i) {
      any |= std::max(begin(i), first_key) < std::min(end(i), last_key);
      all &= begin(i) <= first_key && last_key <= end(i);
    }
    if (const std::uint8_t* allowed_by = allowed_keys()) {
      const auto n = std::count(allowed_by + first_key, allowed_by + last_key, std::uint8_t{0});
      any &= n < static_cast<std::ptrdiff_t>(last_key - first_key);
      all &= n == 0;
    }
    return !any ? Seen::nothing : all ? Seen::all : Seen::some;
  }

 private:
  /// How many keys there are up to the place of query i: 0 if it stands before the first.
  std::size_t keys_to(std::size_t i) const {
    if (mask_.places != nullptr) return static_cast<std::size_t>(mask_.places[b_ * queries_ + i]) + 1;
    return i + 1 + keys_ > queries_ ? i + 1 + keys_ - queries_ : 0;
  }
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
