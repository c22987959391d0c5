#pragma once

#include <cmath>

#include <xtape/framework/nn/initialise.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

/// Learned positions (Gehring et al. 2017, section 3.1): adds row t of weight (length, width) to place t of x (batch,
/// time, width). Rows start normal with standard deviation 1 / sqrt(width).
template <class T>
struct LearnedPositions {
  LayerName name;
  Parameter<T> weight;

  LearnedPositions(std::size_t length, std::size_t width, Rng& rng) : weight({length, width}, Role::embedding) {
    require<ShapeError>(length > 0 && width > 0,
                        "[LearnedPositions] length and width must be at least 1, got {} and {}", length, width);
    init_normal(weight, 1 / std::sqrt(static_cast<double>(width)), rng);
  }

  Var<T> operator()(Var<T> x) const {
    const auto here = name.enter();
    const Shape shape = x.shape(), table = weight.shape();
    require<ShapeError>(shape.rank() == 3 && shape[1] <= table[0] && shape[2] == table[1],
                        "[LearnedPositions] x must be (batch, time up to {}, {}), got {}", table[0], table[1], shape);
    return x + slice(x.tape().var(weight), 0, 0, shape[1]);
  }
  void visit(auto&& f) { f("weight", weight); }
};

}  // namespace xtape
