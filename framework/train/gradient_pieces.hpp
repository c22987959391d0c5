#pragma once
// The gradients of many parameters in pieces of fixed size, for one parallel loop over all of them: a loop for each
// would cost more than most parameters do, and with sizes that are fixed the bits of a sum do not depend on threads.

#include <vector>

#include <xtape/framework/nn/parameter_list.hpp>

namespace xtape::detail {

/// A stretch of one parameter's gradient.
template <class T>
struct GradientPiece {
  std::size_t entry;  // of the list
  std::size_t begin;  // within the parameter
  std::size_t size;
  T* data;         // of this piece
  double squares;  // their sum, once it is asked for
};

/// The pieces of those parameters that have a gradient and are not frozen, each once even if it is listed twice. They
/// stand in memory of the calling thread until it asks again.
template <class T>
std::vector<GradientPiece<T>>& gradient_pieces(const ParameterList<T>& list);

/// Fills in the pieces' sums of squares and adds them in order: one pass over the gradients, on all threads.
template <class T>
double sum_of_squares(std::vector<GradientPiece<T>>& pieces);

}  // namespace xtape::detail
