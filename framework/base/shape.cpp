#include <xtape/framework/base/shape.hpp>

#include <algorithm>
#include <ostream>

namespace xtape {

void Shape::push_back(std::size_t extent) {
  require<ShapeError>(rank_ < max_rank, "[shape] rank must be at most {}, got more extents than that", max_rank);
  extents_[rank_++] = extent;
}

void Shape::throw_too_large() const {
  raise<ShapeError>("[shape] expected at most {} elements, got shape {}", max_size, to_string(*this));
}

Shape Shape::with_back(std::size_t extent) const {
  Shape result = *this;
  if (rank_ > 0) result.extents_[rank_ - 1] = extent;
  return result;
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < shape.rank(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + (shape.rank() == 1 ? ",)" : ")");
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << to_string(shape); }

Shape broadcast(const char* op, const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  const std::size_t offset = longer.rank() - shorter.rank();
  Shape result = longer;
  for (std::size_t axis = 0; axis < shorter.rank(); ++axis) {
    const std::size_t m = longer[offset + axis], n = shorter[axis];
    require<ShapeError>(m == n || m == 1 || n == 1,
                        "[{}] shapes must broadcast (equal extents, or 1, from the last axis on), got {} and {}", op, a,
                        b);
    result[offset + axis] = m == 1 ? n : m;
  }
  return result;
}

Axes::Axes(std::initializer_list<int> axes) : count_(axes.size()) {
  require<ShapeError>(axes.size() <= Shape::max_rank, "[axes] at most {} axes can be named, got {}", Shape::max_rank,
                      axes.size());
  std::copy(axes.begin(), axes.end(), axes_.begin());
}

std::size_t resolve_axis(const char* op, int axis, std::size_t rank) {
  const int signed_rank = static_cast<int>(rank);
  require<ShapeError>(axis >= -signed_rank && axis < signed_rank, "[{}] axis must be in [{}, {}), got {}", op,
                      -signed_rank, signed_rank, axis);
  return static_cast<std::size_t>(axis < 0 ? axis + signed_rank : axis);
}

std::array<std::size_t, Shape::max_rank> Axes::resolve(const char* op, std::size_t rank) const {
  std::array<std::size_t, Shape::max_rank> result{};
  for (std::size_t i = 0; i < count_; ++i) {
    result[i] = resolve_axis(op, axes_[i], rank);
    for (std::size_t j = 0; j < i; ++j)
      require<ShapeError>(result[i] != result[j], "[{}] each axis may be named once, got axis {} twice", op, result[i]);
  }
  return result;
}

}  // namespace xtape
