#include "common/utf8.hpp"

#include <algorithm>
#include <xtape/framework/base/error.hpp>

namespace examples {

namespace {

struct Range {
  char32_t first, last;
};

// Common blocks of East Asian Width W and F (Unicode Standard Annex 11), and emoji.
constexpr Range wide[] = {{0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},   {0x2614, 0x2615},
                          {0x26A1, 0x26A1},   {0x26BD, 0x26BE},   {0x2705, 0x2705},   {0x2728, 0x2728},
                          {0x274C, 0x274C},   {0x2753, 0x2755},   {0x2B50, 0x2B50},   {0x2E80, 0x303E},
                          {0x3041, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
                          {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F004, 0x1F004},
                          {0x1F0CF, 0x1F0CF}, {0x1F18E, 0x1F19A}, {0x1F1E6, 0x1F202}, {0x1F300, 0x1F64F},
                          {0x1F680, 0x1F6FF}, {0x1F7E0, 0x1F7EB}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD}};
// Marks that stand on the character before them: general categories Mn, Me and the joiners, in common scripts.
constexpr Range combining[] = {
    {0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD},   {0x0610, 0x061A},  {0x064B, 0x065F}, {0x0900, 0x0902},
    {0x093C, 0x093C}, {0x0941, 0x0948}, {0x094D, 0x094D},   {0x0E31, 0x0E31},  {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E},
    {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200D},   {0x20D0, 0x20FF},  {0x302A, 0x302D}, {0x3099, 0x309A},
    {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0x1F3FB, 0x1F3FF}, {0xE0100, 0xE01EF}};
// What a terminal obeys instead of showing it: line ends, escapes, changes of the direction of writing.
constexpr Range control[] = {{0x0000, 0x001F}, {0x007F, 0x009F}, {0x200E, 0x200F},
                             {0x2028, 0x202E}, {0x2066, 0x2069}, {0xFEFF, 0xFEFF}};

template <std::size_t N>
bool is_in(const Range (&ranges)[N], char32_t c) {
  return std::any_of(std::begin(ranges), std::end(ranges), [c](Range r) { return r.first <= c && c <= r.last; });
}

/// The code point that begins at a byte, and the bytes that it takes (RFC 3629, section 4).
struct CodePoint {
  char32_t number;
  std::size_t bytes;
};
CodePoint code_point(const std::string& text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned lead = byte(at);
  const std::size_t bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t number = bytes == 1 ? lead : lead & (0x7Fu >> bytes);
  bool valid = lead < 0x80 || (lead >= 0xC2 && lead <= 0xF4);
  for (std::size_t i = 1; i < bytes; ++i) {
    valid = valid && (byte(at + i) & 0xC0) == 0x80;
    number = number << 6 | (byte(at + i) & 0x3F);
  }
  constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  valid = valid && number >= smallest[bytes] && number <= 0x10FFFF && (number < 0xD800 || number > 0xDFFF);
  xtape::require(valid, "the text is not valid UTF-8: byte {} is 0x{:02X}, which begins no character", at + 1, lead);
  return {number, bytes};
}

std::size_t width_of(char32_t c) { return is_in(combining, c) ? 0 : is_in(wide, c) ? 2 : 1; }

}  // namespace

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> result;
  for (std::size_t at = 0; at < text.size();) {
    const auto [number, bytes] = code_point(text, at);
    xtape::require(!is_control(number),
                   "the text may hold no control characters such as line ends and tabs, got U+{:04X} at byte {}",
                   static_cast<std::uint32_t>(number), at + 1);
    const std::string character = text.substr(at, bytes);
    if (is_in(combining, number) && !result.empty())
      result.back() += character;
    else
      result.push_back(character);
    at += bytes;
  }
  return result;
}

std::u32string code_points(const std::string& text) {
  std::u32string result;
  for (std::size_t at = 0; at < text.size();) {
    const auto [number, bytes] = code_point(text, at);
    result.push_back(number);
    at += bytes;
  }
  return result;
}

std::string to_utf8(char32_t number) {
  const auto continuation = [&](int shift) { return static_cast<char>(0x80 | (number >> shift & 0x3F)); };
  if (number < 0x80) return {static_cast<char>(number)};
  if (number < 0x800) return {static_cast<char>(0xC0 | number >> 6), continuation(0)};
  if (number < 0x10000) return {static_cast<char>(0xE0 | number >> 12), continuation(6), continuation(0)};
  return {static_cast<char>(0xF0 | number >> 18), continuation(12), continuation(6), continuation(0)};
}

bool is_control(char32_t number) { return is_in(control, number); }

std::size_t display_width(const std::string& text) {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [number, bytes] = code_point(text, at);
    width += width_of(number);
    at += bytes;
  }
  return width;
}

std::string padded(std::string text, std::size_t width) {
  const std::size_t taken = display_width(text);
  if (taken < width) text.append(width - taken, ' ');
  return text;
}

}  // namespace examples
