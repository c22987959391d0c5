#pragma once
// The checks as the public functions start them.

#include <xtape/framework/train/gradcheck/checked.hpp>

namespace xtape::detail {

/// What is checked.
struct Subject {
  CheckedFunction f;
  std::vector<Shape> shapes;
  std::vector<std::vector<double>> values;
  ParameterList<double> parameters;
};
/// How it is checked: see GradcheckOptions.
struct Settings {
  std::uint64_t seed = 0;
  std::size_t samples = 0, directions = 2;
  bool blame = true;
};

/// Normal random inputs.
std::vector<std::vector<double>> normal_inputs(const std::vector<Shape>& shapes, std::uint64_t seed);

GradcheckReport run_gradcheck(const Subject& subject, const Settings& settings);
GradcheckReport run_gradcheck_directions(const Subject& subject, const Settings& settings);

}  // namespace xtape::detail
