#pragma once

#include <xtape/framework/ops/ops.hpp>

namespace xtape {

/// In training drops each element with probability p and scales the others by 1 / (1 - p); in evaluation the identity.
/// Training or evaluation is the tape's (Tape::set_training).
struct Dropout {
  double p = 0.1;

  explicit Dropout(double p_ = 0.1) : p(p_) { require(p >= 0 && p <= 1, "[Dropout] p must be in [0, 1], got {}", p); }
  template <class T>
  Var<T> operator()(Var<T> x) const {
    return dropout(x, p);
  }
  void visit(auto&&) {}
};

}  // namespace xtape
