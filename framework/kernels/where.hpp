#pragma once
// Choosing between two arrays, element by element.

#include <cstddef>
#include <cstdint>

#include <xtape/framework/kernels/binary.hpp>

namespace xtape::kernels {

/// The condition, which is the plan's left operand, in the shape of the result.
void repeat_mask(const Broadcast& plan, const std::uint8_t* condition, std::uint8_t* chosen);

/// y = chosen ? a : b
template <class T>
void where_forward(const Broadcast& plan, const std::uint8_t* chosen, const T* a, const T* b, T* y);

/// g[i] = or += dy[i] where chosen[i] is `side`, 0 elsewhere: the gradient of one operand before it is summed over the
/// axes along which that operand was repeated.
template <class T>
void where_backward(const std::uint8_t* chosen, std::uint8_t side, const T* dy, T* g, bool accumulate, std::size_t n);

}  // namespace xtape::kernels
