#pragma once

#include <xtape/framework/nn/initialise.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

/// Divides the last axis, x (..., width), by its root mean square and scales it by weight (width,) (Zhang and Sennrich
/// 2019); PyTorch's nn.RMSNorm with its eps given.
template <class T>
struct RmsNorm {
  LayerName name;
  Parameter<T> weight;
  double eps;

  explicit RmsNorm(std::size_t width, double eps_ = 1e-6) : weight({width}, Role::gain), eps(eps_) {
    require<ShapeError>(width > 0, "[RmsNorm] width must be at least 1, got 0");
    fill(weight, T(1));
  }

  Var<T> operator()(Var<T> x) const {
    const auto here = name.enter();
    return rms_norm(x, weight, eps);
  }
  void visit(auto&& f) { f("weight", weight); }
};

}  // namespace xtape
