#pragma once

#include <xtape/framework/nn/initialise.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

/// Normalises the last axis, x (..., width), to mean 0 and variance 1, then scales by weight and shifts by bias
/// (width,), as PyTorch's nn.LayerNorm (Ba, Kiros, Hinton 2016).
template <class T>
struct LayerNorm {
  LayerName name;
  Parameter<T> weight, bias;
  double eps;

  explicit LayerNorm(std::size_t width, double eps_ = 1e-5)
      : weight({width}, Role::gain), bias({width}, Role::bias), eps(eps_) {
    require<ShapeError>(width > 0, "[LayerNorm] width must be at least 1, got 0");
    fill(weight, T(1));
  }

  Var<T> operator()(Var<T> x) const {
    const auto here = name.enter();
    return layer_norm(x, weight, bias, eps);
  }
  void visit(auto&& f) {
    f("weight", weight);
    f("bias", bias);
  }
};

}  // namespace xtape
