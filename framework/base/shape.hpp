#pragma once
// Shapes of rank 0 to 4, held by value so that handling one never allocates.

#include <array>
#include <cstddef>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <string>

#include <xtape/framework/base/error.hpp>

namespace xtape {

/// The extents of an array, outermost first. Rank 0 is a scalar; an extent may be 0.
class Shape {
 public:
  static constexpr std::size_t max_rank = 4;
  static constexpr std::size_t max_size = std::size_t{1} << 48;  // more than any memory holds, and far from overflow
  using value_type = std::size_t;

  Shape() = default;
  Shape(std::initializer_list<std::size_t> extents) : Shape(extents.begin(), extents.end()) {}
  /// From any range of extents, for instance `Shape(array.shape())`. Throws ShapeError beyond rank 4.
  template <class Range>
  requires requires(const Range& r) { std::begin(r), std::end(r); }
  explicit Shape(const Range& extents) : Shape(std::begin(extents), std::end(extents)) {}
  template <class Iterator>
  Shape(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(static_cast<std::size_t>(*first));
  }

  std::size_t rank() const { return rank_; }
  /// Number of elements: the product of the extents, 1 for a scalar. Throws ShapeError beyond max_size.
  std::size_t size() const {
    std::size_t n = 1;
    bool too_large = false;
    for (std::size_t extent : *this) {
      if (extent == 0) return 0;
      too_large |= n > max_size / extent;
      n *= extent;
    }
    if (too_large) [[unlikely]]
      throw_too_large();
    return n;
  }
  std::size_t& operator[](std::size_t axis) { return extents_[axis]; }
  std::size_t operator[](std::size_t axis) const { return extents_[axis]; }
  /// Extent of the last axis; 1 for a scalar.
  std::size_t back() const { return rank_ == 0 ? 1 : extents_[rank_ - 1]; }
  /// Number of rows when every axis but the last is seen as one.
  std::size_t rows() const {
    std::size_t n = 1;
    for (std::size_t axis = 0; axis + 1 < rank_; ++axis) n *= extents_[axis];
    return n;
  }
  const std::size_t* begin() const { return extents_.data(); }
  const std::size_t* end() const { return extents_.data() + rank_; }
  void push_back(std::size_t extent);
  /// The same shape with its last extent replaced; a scalar stays a scalar.
  Shape with_back(std::size_t extent) const;

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  [[noreturn]] void throw_too_large() const;
  std::array<std::size_t, max_rank> extents_{};  // unused extents stay 0, so that == may compare them
  std::size_t rank_ = 0;
};

/// "(2, 5, 12)", "(3,)" or "()", as NumPy writes them.
std::string to_string(const Shape& shape);
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// NumPy's broadcasting: the common shape of a and b. Throws ShapeError naming `op`.
Shape broadcast(const char* op, const Shape& a, const Shape& b);

/// A list of axes; a negative axis counts from the end.
class Axes {
 public:
  Axes(int axis) : Axes({axis}) {}
  Axes(std::initializer_list<int> axes);
  std::size_t count() const { return count_; }
  /// The axes as numbers below `rank`, in the order given. Throws ShapeError naming `op` if one is out of range or
  /// comes twice.
  std::array<std::size_t, Shape::max_rank> resolve(const char* op, std::size_t rank) const;

 private:
  std::array<int, Shape::max_rank> axes_{};
  std::size_t count_ = 0;
};

/// One axis as a number below `rank`. Throws ShapeError naming `op`.
std::size_t resolve_axis(const char* op, int axis, std::size_t rank);

}  // namespace xtape

namespace xtape::detail {
/// Formats with `{}` whatever has a to_string.
struct ToStringFormatter {
  constexpr auto parse(auto& context) { return context.begin(); }
  auto format(const auto& x, auto& context) const { return fmt::format_to(context.out(), "{}", to_string(x)); }
};
}  // namespace xtape::detail

template <>
struct fmt::formatter<xtape::Shape> : xtape::detail::ToStringFormatter {};
