#pragma once
// The errors of the library and `require`, the one way to throw them.

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace xtape {

/// Base of every error that xtape throws. The message is a sentence: `[op] what was expected, got what came`; inside a
/// model the layer's path stands before it: `blocks.1.self_attn: [attention] ...`.
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

namespace detail {
/// The sentence, after the path of the layer whose call is running (see layer_name.hpp).
std::string in_current_layer(std::string sentence);
}  // namespace detail

/// Throws E with the formatted sentence.
template <class E = Error, class... Args>
[[noreturn]] void raise(fmt::format_string<Args...> sentence, Args&&... args) {
  throw E(detail::in_current_layer(fmt::format(sentence, std::forward<Args>(args)...)));
}
/// The same unless `ok`.
template <class E = Error, class... Args>
void require(bool ok, fmt::format_string<Args...> sentence, Args&&... args) {
  if (!ok) [[unlikely]]
    raise<E>(sentence, std::forward<Args>(args)...);
}

}  // namespace xtape
