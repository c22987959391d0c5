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

/// The arguments whose gradient is wrong, of all ops of f at the given inputs, in the order of recording; if there are
/// none, operands that are not among their op's inputs, and values made outside the tape's ops; at most 16. Empty if
/// nothing can be shown to be wrong: a bar that is too wide, or a kink, is no blame. Parameters outside the list are
/// tried as well, the list gives names. Values and gradients of parameters are afterwards as they were. Throws what f
/// throws.
///
/// All ops share runs of f: some 50 of them, twice as many where nothing is wrong, and 10 to 30 for every halving of a
/// wrong argument's elements. For large functions the numbers that all runs compute are limited. Where a search ends
/// early for it, the place of the blame is where the wrong elements begin, and its numbers are those of a random
/// direction through them.
std::vector<Blame> find_blame(const CheckedFunction& f, const std::vector<Shape>& shapes,
                              const std::vector<std::vector<double>>& values, const ParameterList<double>& parameters,
                              std::uint64_t seed);

}  // namespace xtape::detail
