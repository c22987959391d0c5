#pragma once

#include <optional>

#include <xtape/framework/nn/initialise.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

struct LinearOptions {
  bool bias = true;
};

/// x (..., in) -> x weight^T + bias (..., out); weight (out, in), bias (out,), as PyTorch's nn.Linear. The weight
/// starts normal with standard deviation 1 / sqrt(in), the bias at 0.
template <class T>
struct Linear {
  LayerName name;
  Parameter<T> weight;
  std::optional<Parameter<T>> bias;

  Linear(std::size_t in, std::size_t out, Rng& rng, LinearOptions options = {}) : weight({out, in}) {
    require<ShapeError>(in > 0 && out > 0, "[Linear] in and out must be at least 1, got {} and {}", in, out);
    init_scaled_normal(weight, rng);
    if (options.bias) bias.emplace(Shape{out}, Role::bias);
  }

  Var<T> operator()(Var<T> x) const {
    const auto here = name.enter();
    return bias ? linear(x, weight, *bias) : linear(x, weight);
  }
  void visit(auto&& f) {
    f("weight", weight);
    f("bias", bias);
  }
};

}  // namespace xtape
