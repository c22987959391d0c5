#pragma once

#include <xtape/framework/nn/initialise.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

struct LayerNormOptions {
  double eps = 1e-5;
  bool bias = true;
};

/// Normalises the last axis, x (..., width), to mean 0 and variance 1, then scales by weight and shifts by bias
/// (width,), as PyTorch's nn.LayerNorm (Ba, Kiros, Hinton 2016). Without a bias, `bias` is empty and not listed.
template <class T>
struct LayerNorm {
  LayerName name;
  Parameter<T> weight, bias;
  double eps;

  explicit LayerNorm(std::size_t width, double eps_ = 1e-5) : LayerNorm(width, LayerNormOptions{.eps = eps_}) {}
  LayerNorm(std::size_t width, LayerNormOptions options)
      : weight({width}, Role::gain), bias({options.bias ? width : 0}, Role::bias), eps(options.eps) {
    require<ShapeError>(width > 0, "[LayerNorm] width must be at least 1, got 0");
    fill(weight, T(1));
  }

  Var<T> operator()(Var<T> x) const {
    const auto here = name.enter();
    return has_bias() ? layer_norm(x, weight, bias, eps) : layer_norm(x, weight, {}, eps);
  }
  void visit(auto&& f) {
    f("weight", weight);
    if (has_bias()) f("bias", bias);
  }

 private:
  bool has_bias() const { return bias.size() > 0; }
};

}  // namespace xtape
