#include <xtape/framework/kernels/rope.hpp>
#include <xtape/framework/ops/ops.hpp>

#include <cmath>

namespace xtape {

template <class T>
Var<T> rope(Var<T> x, std::size_t heads, const RopeOptions& options) {
  Tape<T>& tape = tape_of("rope", x);
  const Shape shape = x.shape();
  require<ShapeError>(shape.rank() == 3 && heads > 0 && heads <= shape[2] && shape[2] % (2 * heads) == 0,
                      "[rope] x must be (batch, time, heads * an even head width) for {} heads, got {}", heads, shape);
  require(std::isfinite(options.base) && options.base > 0, "[rope] base must be positive, got {}", options.base);
  const std::size_t batch = shape[0], time = shape[1], width = shape[2] / heads;
  const Integers& positions = options.positions;
  if (positions) {
    tape.check(positions, "rope");
    require<ShapeError>(positions.shape == Shape{batch, time},
                        "[rope] positions must be (batch {}, time {}) to match x {}, got {}", batch, time, shape,
                        positions.shape);
    require(options.first_position == 0, "[rope] expected positions or a first_position, got both, the latter {}",
            options.first_position);
  }
  Var<T> y = tape.output("rope", shape, x);
  const std::size_t angle_rows = positions ? batch * time : time;
  T *cosines = tape.scratch(angle_rows * width / 2), *sines = tape.scratch(angle_rows * width / 2);
  kernels::rope_angles(angle_rows, width, options.base, positions.data, options.first_position, cosines, sines);
  const kernels::RopeShape s{batch * time, heads, width, angle_rows, options.pairing == RopePairing::interleaved};
  kernels::rope(s, false, cosines, sines, x.data(), y.data(), false);
  tape.on_backward(y, [=] {
    const auto [dx, accumulate] = x.tape().slot(x);
    kernels::rope(s, true, cosines, sines, y.tape().slot(y).data, dx, accumulate);
  });
  return y;
}

template Var<float> rope(Var<float>, std::size_t, const RopeOptions&);
template Var<double> rope(Var<double>, std::size_t, const RopeOptions&);

}  // namespace xtape
