#pragma once
// Which parameters backward has reached: the others do not train.

#include <string>
#include <vector>

#include <xtape/framework/nn/parameter_list.hpp>

namespace xtape {

/// The parameters of a list by what their gradients hold since zero_grad(). A frozen one counts as frozen alone.
struct GradientCoverage {
  std::vector<std::string> reached;  // something that is not 0
  std::vector<std::string> zero;     // 0 everywhere: a dead end, or a part that this batch did not use
  std::vector<std::string> none;     // nothing: no backward has reached it
  std::vector<std::string> frozen;
  /// Whether everything that is not frozen trains.
  bool complete() const { return zero.empty() && none.empty(); }
};

template <class T>
GradientCoverage gradient_coverage(const ParameterList<T>& list);

/// "Gradients reached 17 of 20 parameters; they are 0 everywhere in a; none came to b, c; frozen: d."
std::string to_string(const GradientCoverage& coverage);

}  // namespace xtape
