#pragma once
// Dropout (Srivastava et al. 2014), scaled in training so that evaluation is the identity.

#include <cstddef>
#include <cstdint>

namespace xtape::kernels {

/// What decides which elements are dropped; see RandomState of the tape.
struct DropoutKey {
  std::uint64_t seed, step, ordinal, first_element;
};

/// Of 2^32 equally likely words those below drop_below(p) drop their element; the others are scaled by kept_factor(p).
inline std::uint64_t drop_below(double p) { return static_cast<std::uint64_t>(p * 0x1p32); }
inline double kept_factor(double p) { return p < 1 ? 1 / (1 - p) : 0; }

/// y[i] = or += x[i] kept(i) / (1 - p), where kept(i) is a pure function of the key and of first_element + i. Backward
/// is the same map on gradients.
template <class T>
void dropout(std::size_t n, double p, const DropoutKey& key, const T* x, T* y, bool accumulate);

}  // namespace xtape::kernels
