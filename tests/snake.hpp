#pragma once
// The op and the layer that the README adds, for tests that use a user's op.

#include "support.hpp"

namespace xtape {

/// x + sin(x)^2, periodic activation (Ziyin et al. 2020). For double.
template <class T>
Var<T> snake(Var<T> x);

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
