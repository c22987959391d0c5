#pragma once
// Text as a terminal shows it: characters, and the columns that each takes.

#include <string>
#include <vector>

namespace examples {

/// The characters of a UTF-8 text, each with the combining marks that follow it. Throws xtape::Error where the text is
/// not UTF-8, and for control characters, which would not be shown but obeyed.
std::vector<std::string> characters(const std::string& text);

/// The code points of a UTF-8 text. Throws xtape::Error with the first byte that begins none.
std::u32string code_points(const std::string& text);
/// A code point as UTF-8.
std::string to_utf8(char32_t number);
/// Whether a terminal would obey it instead of showing it: line ends, escapes, changes of the direction of writing.
bool is_control(char32_t number);

/// Columns of a terminal that a text takes: two for Chinese, Japanese, Korean and emoji, none for combining marks, one
/// for others.
std::size_t display_width(const std::string& text);

/// The text with blanks behind it, `width` columns in all.
std::string padded(std::string text, std::size_t width);

}  // namespace examples
