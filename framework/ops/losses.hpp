#pragma once
// Losses: part of the catalogue, see ops.hpp.

#include <span>

#include <xtape/framework/ops/operand.hpp>

namespace xtape {

/// What becomes of the losses of the elements: their mean, their sum, or all of them as they are.
enum class Reduction { mean, sum, none };

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;            // targets of this value do not count; it need not be a class
  double label_smoothing = 0;                  // s: the target distribution is (1 - s) onehot + s / classes
  Reduction reduction = Reduction::mean;       // over the targets that count; none: (...), 0 where ignored
  std::span<const double> class_weights = {};  // (classes,): each class's loss is multiplied by its weight
};
/// -log softmax(logits)[target], averaged over the targets that count (or summed), a scalar. logits (..., classes),
/// targets (...) any integral expression. If no target counts, the loss is 0 and so are its gradients. With class
/// weights w and smoothing s a target t has loss -(1 - s) w_t log p_t - s / classes sum_c w_c log p_c, and the mean
/// divides by the sum of w_t, as in PyTorch.
template <class T>
Var<T> cross_entropy(Var<T> logits, Integers targets, CrossEntropyOptions options = {});
template <class T, class Targets>
Var<T> cross_entropy(Var<T> logits, const Targets& targets, CrossEntropyOptions options = {}) {
  return cross_entropy(logits, logits.tape("cross_entropy").integers(targets), options);
}

// The others compare x with a target of the same shape, or one number; both may want a gradient. A mean over nothing is
// a ShapeError.

/// (x - target)^2
template <class T>
Var<T> mse(Var<T> x, Operand<T> target, Reduction reduction = Reduction::mean);
/// |x - target|; the derivative where they are equal is 0.
template <class T>
Var<T> l1(Var<T> x, Operand<T> target, Reduction reduction = Reduction::mean);
/// -(target log sigmoid(x) + (1 - target) log(1 - sigmoid(x))), finite for every x; targets are probabilities.
template <class T>
Var<T> bce_with_logits(Var<T> x, Operand<T> target, Reduction reduction = Reduction::mean);
/// target (log target - x), where x holds log-probabilities and target probabilities; 0 where the target is 0. Summed
/// it is the Kullback-Leibler divergence of all rows together, PyTorch's "batchmean" times the batch.
template <class T>
Var<T> kl_div(Var<T> x, Operand<T> target, Reduction reduction = Reduction::mean);

}  // namespace xtape
