#pragma once
// What a time depends on besides the code, to stand beside every result.

#include <string>
#include <utility>
#include <vector>

namespace xtape::benchmarks {

/// Machine, threads, BLAS, and how the library was compiled, by name.
std::vector<std::pair<std::string, std::string>> circumstances();

}  // namespace xtape::benchmarks
