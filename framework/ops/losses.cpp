#include <xtape/framework/ops/binary_op.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {
namespace {

template <class T>
Var<T> loss(const char* name, kernels::Binary f, Var<T> x, const In<T>& operand, Reduction reduction) {
  const Var<T> target = operand.on(x.tape(name));
  tape_of(name, x, target);
  // (n, 1) against (n,) would broadcast to (n, n), and train on nonsense.
  require<ShapeError>(target.shape() == x.shape() || target.shape().rank() == 0,
                      "[{}] target must have the shape of x {}, or be one number, got {}", name, x.shape(),
                      target.shape());
  const Var<T> losses = binary_op(name, f, x, target);
  if (reduction == Reduction::none) return losses;
  if (reduction == Reduction::sum) return sum(losses);
  require<ShapeError>(losses.size() > 0, "[{}] expected at least one element to average over, got shape {}", name,
                      losses.shape());
  return mean(losses);
}

}  // namespace

template <class T>
Var<T> mse(Var<T> x, Operand<T> target, Reduction reduction) {
  return loss("mse", kernels::Binary::squared_error, x, target, reduction);
}
template <class T>
Var<T> l1(Var<T> x, Operand<T> target, Reduction reduction) {
  return loss("l1", kernels::Binary::absolute_error, x, target, reduction);
}
template <class T>
Var<T> bce_with_logits(Var<T> x, Operand<T> target, Reduction reduction) {
  return loss("bce_with_logits", kernels::Binary::bce_with_logits, x, target, reduction);
}
template <class T>
Var<T> kl_div(Var<T> x, Operand<T> target, Reduction reduction) {
  return loss("kl_div", kernels::Binary::kl_divergence, x, target, reduction);
}

template Var<float> mse(Var<float>, Operand<float>, Reduction);
template Var<double> mse(Var<double>, Operand<double>, Reduction);
template Var<float> l1(Var<float>, Operand<float>, Reduction);
template Var<double> l1(Var<double>, Operand<double>, Reduction);
template Var<float> bce_with_logits(Var<float>, Operand<float>, Reduction);
template Var<double> bce_with_logits(Var<double>, Operand<double>, Reduction);
template Var<float> kl_div(Var<float>, Operand<float>, Reduction);
template Var<double> kl_div(Var<double>, Operand<double>, Reduction);

}  // namespace xtape
