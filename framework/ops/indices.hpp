#pragma once
// Checks of tokens and targets, for op files.

#include <xtape/framework/tape/var.hpp>

namespace xtape {

/// Throws ShapeError, naming the place of the first one, if an index other than `allowed` is not in [0, end).
inline void check_range(const char* op, const char* what, const Integers& indices, std::size_t end,
                        const std::int64_t* allowed = nullptr) {
  const std::size_t n = indices.shape.size();
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t index = indices.data[i];
    if (index >= 0 && index < static_cast<std::int64_t>(end)) continue;
    if (allowed != nullptr && index == *allowed) continue;
    Shape place = indices.shape;
    std::size_t rest = i;
    for (std::size_t axis = place.rank(); axis-- > 0; rest /= indices.shape[axis])
      place[axis] = rest % indices.shape[axis];
    raise<ShapeError>("[{}] every {} must be in [0, {}){}, got {} at {} of {}", op, what, end,
                      allowed != nullptr ? fmt::format(" or {}, which is ignored", *allowed) : "", index, place,
                      indices.shape);
  }
}

}  // namespace xtape
