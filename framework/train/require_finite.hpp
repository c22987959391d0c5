#pragma once
// The guard between backward and step: nothing infinite or NaN gets into the parameters, and where it came from is
// told.

#include <xtape/framework/nn/parameter_list.hpp>
#include <xtape/framework/tape/tape.hpp>

namespace xtape {

/// Passes if the loss and the gradients in the list (of parameters that are not frozen) are finite, at the cost of one
/// pass over the gradients, and returns their norm, which saves the optimizer that pass:
///
///   tape.backward(loss);
///   const double norm = require_finite(loss, optimizer.parameters());
///   optimizer.step({.max_norm = 1.0, .norm = norm});
///
/// Otherwise throws Error with the step (Tape::set_step) and the first number that is not finite, where it stands, and
/// the op and layer that made it: of the values that led to the loss, or, if these are all finite, of the gradients on
/// the way to the parameters, for which backward runs once more. Parameters and gradients keep their bits.
///
/// Only what led to the loss counts: -inf in a mask, or in an output that nobody used, is none of its business.
template <class T>
double require_finite(Var<T> loss, const ParameterList<T>& list);

}  // namespace xtape
