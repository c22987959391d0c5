#pragma once
// What people call the inputs of an op.

#include <cstddef>
#include <string>
#include <string_view>

namespace xtape::detail {

/// Name of input i, counted from 0, of the `count` inputs of an op: "k" for attention's second, "2 of 3" if the op is
/// not one of the catalogue.
std::string argument_name(std::string_view op, std::size_t i, std::size_t count);

}  // namespace xtape::detail
