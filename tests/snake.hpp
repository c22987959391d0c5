#pragma once
// The op and the layer that the README adds, for tests that use a user's op.

#include "support.hpp"

namespace xtape {

/// x + sin(x)^2, periodic activation (Ziyin et al. 2020).
template <class T>
Var<T> snake(Var<T> x) {
  Var<T> y = x.tape().output("snake", x.shape(), x);
  xt::noalias(y.value()) = x.value() + xt::square(xt::sin(x.value()));
  x.tape().on_backward(y, [x, y] { xt::noalias(x.grad()) += y.grad() * (T(1) + xt::sin(T(2) * x.value())); });
  return y;
}

template <class T>
struct SnakeMlp {
  Linear<T> up, down;
  SnakeMlp(std::size_t width, std::size_t hidden, Rng& rng) : up(width, hidden, rng), down(hidden, width, rng) {}
  Var<T> operator()(Var<T> x) { return down(snake(up(x))); }
  void visit(auto&& f) {
    f("up", up);
    f("down", down);
  }
};

}  // namespace xtape
