#include <xtape/framework/kernels/rope.hpp>

#include <cmath>

#include <xtape/framework/kernels/rows.hpp>
#include <xtape/framework/kernels/simd.hpp>

namespace xtape::kernels {
namespace {

/// (a, b) -> (a cos - b sin, b cos + a sin) for the pairs of one head that stand side by side.
template <class T>
void turn_interleaved(std::size_t pairs, T sign, const T* cosines, const T* sines, const T* x, T* y, bool accumulate) {
  for (std::size_t i = 0; i < pairs; ++i) {
    const T a = x[2 * i], b = x[2 * i + 1], c = cosines[i], s = sign * sines[i];
    y[2 * i] = (accumulate ? y[2 * i] : T(0)) + (a * c - b * s);
    y[2 * i + 1] = (accumulate ? y[2 * i + 1] : T(0)) + (b * c + a * s);
  }
}

/// The same for pairs that stand half a head apart.
template <class T>
void turn_halves(std::size_t pairs, T sign, const T* cosines, const T* sines, const T* x, T* y, bool accumulate) {
  sweep<T>(pairs, [&](std::size_t i, auto extent) {
    const Batch<T> a = load(x + i, extent), b = load(x + pairs + i, extent);
    const Batch<T> c = load(cosines + i, extent), s = Batch<T>(sign) * load(sines + i, extent);
    put(accumulate, y + i, a * c - b * s, extent);
    put(accumulate, y + pairs + i, b * c + a * s, extent);
  });
}

}  // namespace

template <class T>
void rope_angles(std::size_t rows, std::size_t width, double base, const std::int64_t* positions,
                 std::size_t first_position, T* cosines, T* sines) {
  const std::size_t pairs = width / 2;
  parallel_chunks(rows, 64, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
      for (std::size_t row = begin; row < end; ++row) {
        const double position = positions != nullptr ? static_cast<double>(positions[row])
                                                     : static_cast<double>(first_position) + static_cast<double>(row);
        cosines[row * pairs + i] = static_cast<T>(std::cos(position * frequency));
        sines[row * pairs + i] = static_cast<T>(std::sin(position * frequency));
      }
    }
  });
}

template <class T>
void rope(const RopeShape& shape, bool opposite, const T* cosines, const T* sines, const T* x, T* y, bool accumulate) {
  const std::size_t columns = shape.heads * shape.width, pairs = shape.width / 2;
  const auto turn = shape.interleaved ? turn_interleaved<T> : turn_halves<T>;
  for_each_row(shape.rows, columns, [&](std::size_t row) {
    const std::size_t angles = row % shape.angle_rows * pairs;
    for (std::size_t h = 0; h < shape.heads; ++h) {
      const std::size_t at = row * columns + h * shape.width;
      turn(pairs, opposite ? T(-1) : T(1), cosines + angles, sines + angles, x + at, y + at, accumulate);
    }
  });
}

template void rope_angles(std::size_t, std::size_t, double, const std::int64_t*, std::size_t, float*, float*);
template void rope_angles(std::size_t, std::size_t, double, const std::int64_t*, std::size_t, double*, double*);
template void rope(const RopeShape&, bool, const float*, const float*, const float*, float*, bool);
template void rope(const RopeShape&, bool, const double*, const double*, const double*, double*, bool);

}  // namespace xtape::kernels
