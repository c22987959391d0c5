#pragma once
// Rotary positions (Su et al. 2021, section 3.4): pair i of a head turns by position * base^(-2 i / width).

#include <cstddef>
#include <cstdint>

namespace xtape::kernels {

/// Cosine and sine of every angle, (rows, width / 2) each, computed in double. Row r stands at positions[r], or at
/// first_position + r if that is null.
template <class T>
void rope_angles(std::size_t rows, std::size_t width, double base, const std::int64_t* positions,
                 std::size_t first_position, T* cosines, T* sines);

/// Where the two numbers of a pair stand in a head, and how rows of x find their angles.
struct RopeShape {
  std::size_t rows, heads, width;  // x is (rows, heads * width)
  std::size_t angle_rows;          // row r takes the angles of row r % angle_rows
  bool interleaved;                // pair i at 2 i and 2 i + 1, else at i and i + width / 2
};
/// y = or += x turned by the angles, or by their opposites: a rotation's backward.
template <class T>
void rope(const RopeShape& shape, bool opposite, const T* cosines, const T* sines, const T* x, T* y, bool accumulate);

}  // namespace xtape::kernels
