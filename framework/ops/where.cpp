#include <xtape/framework/kernels/reduce.hpp>
#include <xtape/framework/kernels/where.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

template <class T>
Var<T> where(Mask condition, Var<T> a, Var<T> b) {
  Tape<T>& tape = tape_of("where", a, b);
  tape.check(condition, "where");
  const Shape operands = broadcast("where", a.shape(), b.shape()),
              shape = broadcast("where", condition.shape, operands);
  Var<T> y = tape.output("where", shape, a, b);
  auto* chosen = static_cast<std::uint8_t*>(tape.scratch_bytes(shape.size()));
  kernels::repeat_mask(kernels::plan_broadcast(shape, condition.shape, {}), condition.data, chosen);
  const kernels::Broadcast plan = kernels::plan_broadcast(shape, a.shape(), b.shape());
  kernels::where_forward(plan, chosen, a.data(), b.data(), y.data());
  tape.on_backward(y, [=] {
    Tape<T>& t = y.tape();
    const T* dy = t.slot(y).data;
    for (const auto& [x, side] : {std::pair(a, std::uint8_t{1}), std::pair(b, std::uint8_t{0})}) {
      if (!x.requires_grad()) continue;
      const auto [dx, accumulate] = t.slot(x);
      if (x.size() == y.size()) {
        kernels::where_backward(chosen, side, dy, dx, accumulate, y.size());
        continue;
      }
      const auto picked = t.workspace(y.size());
      kernels::where_backward(chosen, side, dy, picked.data(), false, y.size());
      kernels::sum_forward(kernels::plan_sum_to(y.shape(), x.shape()), picked.data(), dx, T(1), accumulate);
    }
  });
  return y;
}

template Var<float> where(Mask, Var<float>, Var<float>);
template Var<double> where(Mask, Var<double>, Var<double>);

}  // namespace xtape
