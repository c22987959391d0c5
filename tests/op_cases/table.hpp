#pragma once
// The table of ops: every op of ops.hpp, in several shapes. What checks ops runs over all rows.

#include <xtensor/xarray.hpp>

#include "op_cases/case.hpp"

namespace xtape {

/// "softmax (2, 3)"
std::string to_string(const OpCase& c);

namespace op_cases {

const std::vector<OpCase>& table();

/// Random arrays of the given shapes.
std::vector<xt::xarray<double>> random_inputs(const std::vector<Shape>& shapes, std::uint64_t seed,
                                              Domain domain = Domain::normal);
/// Those of a row, in its domain.
std::vector<xt::xarray<double>> inputs_of(const OpCase& c, std::uint64_t seed);

}  // namespace op_cases
}  // namespace xtape
