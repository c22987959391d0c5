#pragma once
// Losses: part of the catalogue, see ops.hpp.

#include <xtape/framework/ops/operand.hpp>

namespace xtape {

enum class Reduction { mean, sum };
struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  // targets of this value do not count
  double label_smoothing = 0;        // the target distribution is (1 - s) onehot + s / classes
  Reduction reduction = Reduction::mean;
};
/// -log softmax(logits)[target], averaged over the targets that count (or summed), a scalar. logits (..., classes),
/// targets (...) any integral expression. If no target counts, the loss is 0 and so are its gradients.
template <class T>
Var<T> cross_entropy(Var<T> logits, Integers targets, CrossEntropyOptions options = {});
template <class T, class Targets>
Var<T> cross_entropy(Var<T> logits, const Targets& targets, CrossEntropyOptions options = {}) {
  return cross_entropy(logits, logits.tape("cross_entropy").integers(targets), options);
}

}  // namespace xtape
