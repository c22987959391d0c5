#pragma once
// Which op of a function has the wrong backward: each op of a record is tried alone.
//
// Analytic: the outputs of one op are given random gradients, its callback alone is run, and what it adds to the
// gradients of its inputs is read. Numeric: the function is run again; when the op opens its output, one of its inputs
// is moved, and when it closes, its outputs are read. What other ops do, before or after, plays no part in either.

#include <cstdint>
#include <vector>

#include <xtape/framework/nn/parameter_list.hpp>
#include <xtape/framework/train/gradcheck/function.hpp>
#include <xtape/framework/train/gradcheck_report.hpp>

namespace xtape::detail {

/// The arguments whose gradient is wrong, of all ops of f at the given inputs, in the order of recording; at most 16.
/// Empty if no op can be shown to be wrong. Parameters outside the list are tried as well, the list gives names. Values
/// and gradients of parameters are afterwards as they were. Throws what f throws.
std::vector<Blame> find_blame(const CheckedFunction& f, const std::vector<Shape>& shapes,
                              const std::vector<std::vector<double>>& values, const ParameterList<double>& parameters,
                              std::uint64_t seed);

}  // namespace xtape::detail
