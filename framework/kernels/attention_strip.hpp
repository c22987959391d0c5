#pragma once
// Queries beside each other and the keys that they may see, for kernel files.

#include <algorithm>

#include <xtape/framework/kernels/attention_head.hpp>

namespace xtape::kernels {

/// The keys that query i sees and those between, in whole vectors where there are as many keys.
template <class T>
struct Span {
  std::size_t first, last;
  Span(const Head<T>& head, std::size_t i)
      : first(head.mask.begin(i) / lanes<T> * lanes<T>),
        last(std::min((head.mask.end(i) + lanes<T> - 1) / lanes<T> * lanes<T>, head.s.keys)) {
    if (head.mask.end(i) == 0) first = last = 0;
  }
  std::size_t size() const { return last - first; }
  /// Zeros where the query sees nothing anyway.
  void clear_outside(T* row, std::size_t keys) const {
    std::fill(row, row + first, T(0));
    std::fill(row + last, row + keys, T(0));
  }
};

/// Some queries and the keys that they may see.
struct Strip {
  std::size_t first_query, queries, first_key, keys;
};
/// Where queries see different keys, strips are low, so that less is computed that nobody sees.
template <class T>
std::size_t strip_height(const Head<T>& head) {
  constexpr std::size_t low = 32;
  return head.mask.narrows() ? low : head.s.queries;
}
/// The strip of the queries first <= i < last.
template <class T>
Strip strip_of(const Head<T>& head, std::size_t first, std::size_t last) {
  std::size_t first_key = head.s.keys, last_key = 0;
  if (head.mask.ascends()) {
    first_key = Span<T>(head, first).first, last_key = Span<T>(head, last - 1).last;
  } else {
    for (std::size_t query = first; query < last; ++query) {
      const Span<T> span(head, query);
      if (span.size() == 0) continue;
      first_key = std::min(first_key, span.first), last_key = std::max(last_key, span.last);
    }
  }
  if (last_key == 0) first_key = 0;
  return {first, last - first, first_key, last_key - first_key};
}
/// f(strip) for strips that cover all queries.
template <class T, class F>
void for_each_strip(const Head<T>& head, F f) {
  const std::size_t height = strip_height(head);
  for (std::size_t i = 0; i < head.s.queries; i += height) f(strip_of(head, i, std::min(i + height, head.s.queries)));
}

}  // namespace xtape::kernels
