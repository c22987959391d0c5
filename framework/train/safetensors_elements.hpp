#pragma once
// The elements of arrays in a safetensors file, converted from its types and to them.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <xtape/framework/train/safetensors_header.hpp>

namespace xtape {

/// Elements of the given type: F64, F32, F16 and BF16 for T = float or double (F64 rounded to nearest for float, the
/// others exact), I64, I32, I16, I8, U8 and BOOL for T = std::int64_t. Throws FormatError, whose sentence begins with
/// `what`, the file's and the array's name, for any other type and for a BOOL that is neither 0 nor 1.
template <class T>
std::vector<T> read_elements(Dtype dtype, std::span<const std::byte> bytes, const std::string& what);

/// What takes the bytes of a file, a piece at a time.
using ByteSink = std::function<void(std::span<const std::byte>)>;

/// Elements in the given type: F64, F32, F16 or BF16 for T = float or double, each rounded once to the nearest (what is
/// too large becomes infinity, as IEEE 754 says), I64 for T = std::int64_t. Throws Error, whose sentence begins with
/// `what`, for any other type.
template <class T>
void write_elements(Dtype dtype, std::span<const T> elements, const std::string& what, const ByteSink& sink);

}  // namespace xtape
