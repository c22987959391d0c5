#pragma once
// How ops declare their further operands.

#include <optional>
#include <type_traits>

#include <xtape/framework/tape/in.hpp>

namespace xtape {

template <class T>
using Operand = std::type_identity_t<In<T>>;
template <class T>
using OptionalOperand = std::type_identity_t<std::optional<In<T>>>;

}  // namespace xtape
