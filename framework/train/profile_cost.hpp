#pragma once
// What an op has to do, from the shapes on a tape.

#include <xtape/framework/tape/tape.hpp>

namespace xtape {

struct OperationCost {
  double flop = 0;   // floating point operations of matrix products; 0 where there are none or the op is not known
  double bytes = 0;  // of arrays that are read or written, each once
};

/// Of the op whose first output this is, in forward: products as linear, matmul and attention make them, where
/// attention counts pairs that its masks hide as well; bytes of inputs and of this output. Of embedding, index_select,
/// gather and slice as much of the input counts as comes out.
template <class T>
OperationCost forward_cost(Var<T> first);
/// In backward: the products of those inputs that require a gradient, twice those of forward for attention; bytes of
/// inputs, of the outputs' gradients, and of the inputs' gradients.
template <class T>
OperationCost backward_cost(Var<T> first);

}  // namespace xtape
