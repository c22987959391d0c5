#pragma once
// Updates of a parameter from its gradient, one pass each. They run on the calling thread, except `approach`: a loop
// over pieces of all parameters stands above them.

#include <cstddef>

namespace xtape::kernels {

struct SgdStep {
  double learning_rate, momentum, weight_decay;
  bool nesterov;
  double gradient_factor = 1;  // from clipping
};
/// With d = gradient_factor g + weight_decay w: b = momentum b + d; w -= learning_rate b, or learning_rate (d +
/// momentum b) if nesterov. `b` may be null if momentum is 0.
template <class T>
void sgd_update(const SgdStep& step, std::size_t n, const T* g, T* w, T* b);

struct AdamStep {
  double learning_rate, beta1, beta2, eps;
  double l2_decay, decoupled_decay;  // added to the gradient; taken off the weight (Loshchilov and Hutter 2019)
  double correction1, correction2;   // 1 - beta^t
  double gradient_factor = 1;        // from clipping
};
/// Adam (Kingma and Ba 2015, algorithm 1) and its variants of weight decay (Loshchilov and Hutter 2019, algorithm 2),
/// in PyTorch's order of operations.
template <class T>
void adam_update(const AdamStep& step, std::size_t n, const T* g, T* w, T* m, T* v);

/// average += rate (x - average): an average that is equal to x keeps its bits.
template <class T>
void approach(double rate, std::size_t n, const T* x, T* average);

/// Whether no element is infinite or NaN.
template <class T>
bool finite(const T* x, std::size_t n);

/// Sum of squares in double, in a fixed order.
template <class T>
double sum_of_squares(const T* x, std::size_t n);
template <class T>
void scale_in_place(T* x, std::size_t n, T factor);

}  // namespace xtape::kernels
