#pragma once
// What happens to gradients between backward and step: accumulation over micro-batches, and clipping. Frozen parameters
// and those without a gradient are passed over, and one that is listed twice counts once.
//
// Several micro-batches make the same step as one batch that holds them all if each adds the gradient of its sum and
// the whole is divided once; the mean of their means is another number if their counts differ:
//
//   std::size_t tokens = 0, row = 0;
//   for (std::size_t i = 0; i < batches.size(); ++i) {
//     const auto& [inputs, targets] = batches[i];
//     tape.clear();
//     tape.set_step(step, row);  // dropout as in the one large batch
//     tape.backward(cross_entropy(model(tape, inputs), targets, {.reduction = Reduction::sum}));
//     tokens += count_targets(targets);
//     row += inputs.shape(0);
//     if ((i + 1) % k != 0 && i + 1 < batches.size()) continue;  // what is left at the end makes a step of its own
//     divide_grad(optimizer.parameters(), tokens);
//     optimizer.step({.max_norm = 1.0});
//     optimizer.zero_grad();
//     tokens = row = 0;
//     ++step;
//   }

#include <cstddef>
#include <cstdint>

#include <xtape/framework/nn/parameter_list.hpp>

namespace xtape {

/// How many targets cross_entropy counts: those that are not the ignored index. Takes any integral xtensor expression.
template <class Targets>
std::size_t count_targets(const Targets& targets, std::int64_t ignore_index = -100) {
  std::size_t counted = 0;
  for (const auto target : targets) counted += static_cast<std::int64_t>(target) != ignore_index ? 1 : 0;
  return counted;
}

/// Makes the gradients of a sum over `count` tokens those of the mean over them. If nothing was counted they are 0 and
/// stay so, as in cross_entropy's own mean.
template <class T>
void divide_grad(const ParameterList<T>& list, std::size_t count);

/// The norm of all gradients together, summed in double. Not finite if one of them is not.
template <class T>
double grad_norm(const ParameterList<T>& list);

/// What clipping multiplies gradients of this norm by: min(1, max / (norm + 1e-6)), and 1 if the norm is not finite.
double clip_coefficient(double norm, double max);

/// Scales all gradients by min(1, max / (norm + 1e-6)), as PyTorch's clip_grad_norm_ does, and returns the norm before
/// it. A norm that is not finite is returned and the gradients are left alone; then the optimizer's step refuses, with
/// the parameter's name. Gradients that need no scaling keep their bits. max = 0 scales to zero; a negative max is an
/// Error. An optimizer's step({.max_norm = max}) does the same without passes of its own.
template <class T>
double clip_grad_norm(const ParameterList<T>& list, double max);

}  // namespace xtape
