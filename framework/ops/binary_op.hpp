#pragma once
// What every elementwise function of two operands is made with, for op files.

#include <xtape/framework/kernels/binary.hpp>
#include <xtape/framework/tape/tape.hpp>

namespace xtape {

/// f(a, b) with broadcasting, recorded under `name`. Defined in arithmetic.cpp.
template <class T>
Var<T> binary_op(const char* name, kernels::Binary f, Var<T> a, Var<T> b);

}  // namespace xtape
