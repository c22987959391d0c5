#pragma once
// Text that somebody else wrote, for a sentence.

#include <string>
#include <string_view>

namespace xtape {

/// The text, cut after a hundred bytes (of UTF-8 no character is cut), without control characters of a terminal.
std::string excerpt(std::string_view text);

}  // namespace xtape
