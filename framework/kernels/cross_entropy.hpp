#pragma once
// Softmax cross-entropy with integer targets, fused.

#include <cstddef>
#include <cstdint>

namespace xtape::kernels {

/// What is saved for each row: p = exp(x - largest) * inverse_sum. Kept apart, since one rounded log-sum-exp loses
/// accuracy at large logits.
template <class T>
struct CrossEntropyRow {
  T largest, inverse_sum;
};

/// loss[row] = -sum over classes of q log p, with q = (1 - s) onehot(target) + s / classes and s the label smoothing;
/// 0 for rows whose target is ignored.
template <class T>
void cross_entropy_forward(std::size_t rows, std::size_t classes, const T* logits, const std::int64_t* targets,
                           std::int64_t ignore, double smoothing, double* loss, CrossEntropyRow<T>* saved);

/// dlogits = or += scale (p - q); 0 for ignored rows.
template <class T>
void cross_entropy_backward(std::size_t rows, std::size_t classes, const T* logits, const std::int64_t* targets,
                            std::int64_t ignore, double smoothing, const CrossEntropyRow<T>* saved, T scale, T* dlogits,
                            bool accumulate);

}  // namespace xtape::kernels
