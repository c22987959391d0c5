#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include <xtape/framework/nn/initialise.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {
namespace detail {

/// Throws unless x is (batch, time, width) for a table (length, width) with time <= length, and positions, if there are
/// any, are (batch, time).
template <class T>
void check_places(const char* layer, Var<T> x, const Shape& table, const Integers& positions) {
  const Shape shape = x.shape();
  require<ShapeError>(shape.rank() == 3 && shape[1] <= table[0] && shape[2] == table[1],
                      "[{}] x must be (batch, time up to {}, {}), got {}", layer, table[0], table[1], shape);
  require<ShapeError>(!positions || positions.shape == Shape{shape[0], shape[1]},
                      "[{}] positions must be (batch {}, time {}) to match x {}, got {}", layer, shape[0], shape[1],
                      shape, positions.shape);
}

}  // namespace detail

/// Learned positions (Gehring et al. 2017, section 3.1): adds row t of weight (length, width) to place t of x (batch,
/// time, width), or the rows that `positions` (batch, time) names. Rows start normal with standard deviation 1 /
/// sqrt(width).
template <class T>
struct LearnedPositions {
  LayerName name;
  Parameter<T> weight;

  LearnedPositions(std::size_t length, std::size_t width, Rng& rng) : weight({length, width}, Role::embedding) {
    require<ShapeError>(length > 0 && width > 0,
                        "[LearnedPositions] length and width must be at least 1, got {} and {}", length, width);
    init_normal(weight, 1 / std::sqrt(static_cast<double>(width)), rng);
  }

  Var<T> operator()(Var<T> x, const Integers& positions = {}) const {
    const auto here = name.enter();
    detail::check_places("LearnedPositions", x, weight.shape(), positions);
    const Var<T> rows = x.tape().var(weight);
    return x + (positions ? embedding(rows, positions) : slice(rows, 0, 0, x.shape()[1]));
  }
  void visit(auto&& f) { f("weight", weight); }
};

/// Sinusoidal positions (Vaswani et al. 2017, section 3.5), a constant table: adds sin(t / 10000^(2 i / width)) to
/// column 2 i and the cosine of the same angle to column 2 i + 1 at place t of x (batch, time up to length, width).
template <class T>
struct SinusoidalPositions {
  LayerName name;
  Shape shape;
  std::vector<T> table;  // (length, width)

  SinusoidalPositions(std::size_t length, std::size_t width) : shape{length, width}, table(shape.size()) {
    require<ShapeError>(length > 0 && width > 0,
                        "[SinusoidalPositions] length and width must be at least 1, got {} and {}", length, width);
    for (std::size_t t = 0; t < length; ++t)
      for (std::size_t column = 0; column < width; ++column) {
        const double exponent = static_cast<double>(column / 2 * 2) / static_cast<double>(width);
        const double angle = static_cast<double>(t) / std::pow(10000.0, exponent);
        table[t * width + column] = static_cast<T>(column % 2 == 0 ? std::sin(angle) : std::cos(angle));
      }
  }

  Var<T> operator()(Var<T> x, const Integers& positions = {}) const {
    const auto here = name.enter();
    detail::check_places("SinusoidalPositions", x, shape, positions);
    const std::size_t length = positions ? shape[0] : x.shape()[1];
    const Var<T> rows = x.tape().output("sinusoidal_positions", {length, shape[1]});
    std::copy_n(table.data(), rows.size(), rows.data());
    return x + (positions ? embedding(rows, positions) : rows);
  }
  void visit(auto&&) {}
};

}  // namespace xtape
