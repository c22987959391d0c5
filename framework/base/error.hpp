#pragma once
// The errors of the library and `require`, the one way to throw them.

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace xtape {

/// Base of every error that xtape throws. The message is a sentence: `[op] what was expected, got what came`.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
/// Shapes, ranks, widths, axes or indices that do not fit.
struct ShapeError : Error {
  using Error::Error;
};
/// Misuse of a tape: stale or foreign handles, an op without a backward, a parameter written too late.
struct TapeError : Error {
  using Error::Error;
};
/// A file that is cut, hostile, or not what was asked for. The message names the file.
struct FormatError : Error {
  using Error::Error;
};

/// Throws E with the formatted sentence unless `ok`.
template <class E = Error, class... Args>
void require(bool ok, fmt::format_string<Args...> sentence, Args&&... args) {
  if (!ok) [[unlikely]]
    throw E(fmt::format(sentence, std::forward<Args>(args)...));
}

}  // namespace xtape
