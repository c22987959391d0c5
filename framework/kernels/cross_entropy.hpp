#pragma once
// Softmax cross-entropy with integer targets, fused.

#include <cstddef>
#include <cstdint>

namespace xtape::kernels {

/// Rows of logits, a target for each, and what counts. With w the class weights, t the target and s the label
/// smoothing, a row's loss is -sum over classes c of q_c log p_c, with q_c = (1 - s) w_t [c = t] + s w_c / classes.
template <class T>
struct CrossEntropy {
  std::size_t rows, classes;
  const std::int64_t* targets;
  std::int64_t ignore;  // rows with this target have loss 0
  double smoothing;
  const T* weights;  // (classes), or null: all are 1

  double weight(std::size_t c) const { return weights == nullptr ? 1 : static_cast<double>(weights[c]); }
};

/// What is saved for each row: p = exp(x - largest) * inverse_sum. Kept apart, since one rounded log-sum-exp loses
/// accuracy at large logits.
template <class T>
struct CrossEntropyRow {
  T largest, inverse_sum;
};

template <class T>
void cross_entropy_forward(const CrossEntropy<T>& c, const T* logits, double* loss, CrossEntropyRow<T>* saved);

/// dlogits = or += scale dy (p sum(q) - q), where dy is one number, or one for each row; 0 for ignored rows.
template <class T>
void cross_entropy_backward(const CrossEntropy<T>& c, const T* logits, const CrossEntropyRow<T>* saved, const T* dy,
                            bool dy_of_each_row, double scale, T* dlogits, bool accumulate);

}  // namespace xtape::kernels
