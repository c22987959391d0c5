#include <xtape/framework/kernels/dropout.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

template <class T>
Var<T> dropout(Var<T> x, double p) {
  require(p >= 0 && p <= 1, "[dropout] p must be in [0, 1], got {}", p);
  Tape<T>& tape = tape_of("dropout", x);
  if (!tape.training() || p == 0) return x;
  const std::size_t n = x.size(), row = x.shape().rank() == 0 || n == 0 ? n : n / x.shape()[0];
  Var<T> y = tape.output("dropout", x.shape(), x);
  const RandomState random = tape.next_random();
  const kernels::DropoutKey key{random.seed, random.step, random.ordinal, random.first_row * row};
  kernels::dropout(n, p, key, x.data(), y.data(), false);
  tape.on_backward(y, [=] {
    const auto [dx, accumulate] = x.tape().slot(x);
    kernels::dropout(n, p, key, y.tape().slot(y).data, dx, accumulate);
  });
  return y;
}

template Var<float> dropout(Var<float>, double);
template Var<double> dropout(Var<double>, double);

}  // namespace xtape
