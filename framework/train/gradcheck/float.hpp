#pragma once
// A function in float against the same in double.
//
// The error bar is estimated by stochastic arithmetic, the idea of the CESTAC method (Vignes, "A stochastic arithmetic
// for reliable scientific computation", Mathematics and Computers in Simulation 35, 1993): the float function is run
// several times with every input and parameter moved at random by one unit in its last place, or left. All roundings
// inside then fall out differently, so what the gradients differ by from run to run is what float leaves open. The bar
// of an element is six times its root mean square spread, at least that of its tensor, and eight units in the last
// place of the gradient, since errors of a float exp are the same in every run.

#include <xtape/framework/nn/parameter_list.hpp>
#include <xtape/framework/train/gradcheck/function.hpp>
#include <xtape/framework/train/gradcheck_report.hpp>

namespace xtape::detail {

struct FloatSubject {
  FunctionOf<float> in_float;
  FunctionOf<double> in_double;
  std::vector<Shape> shapes;
  ParameterList<float> parameters;
  ParameterList<double> parameters_in_double;
};

/// Throws Error unless both lists have the same names and shapes.
GradcheckReport run_gradcheck_float(const FloatSubject& subject, std::uint64_t seed, std::size_t runs);

}  // namespace xtape::detail
