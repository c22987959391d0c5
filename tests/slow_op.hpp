#pragma once
// An op whose time can be seen in a profile.

#include <chrono>
#include <thread>

#include "support.hpp"

namespace xtape {

inline constexpr double nap = 0.002;  // seconds
inline void take_a_nap() { std::this_thread::sleep_for(std::chrono::duration<double>(nap)); }

/// An op that takes its time, forward and backward, and may call others while it is open.
template <class F>
Var<double> slow_op(const char* name, Var<double> x, F&& inside) {
  Var<double> y = x.tape().output(name, x.shape(), x);
  take_a_nap();
  inside();
  xt::noalias(y.value()) = 2.0 * x.value();
  x.tape().on_backward(y, [x, y] {
    take_a_nap();
    xt::noalias(x.grad()) += 2.0 * y.grad();
  });
  return y;
}
inline Var<double> slow_op(const char* name, Var<double> x) {
  return slow_op(name, x, [] {});
}

}  // namespace xtape
