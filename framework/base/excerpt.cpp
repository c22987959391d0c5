#include <xtape/framework/base/excerpt.hpp>

namespace xtape {

std::string excerpt(std::string_view text) {
  constexpr std::size_t longest = 100;
  std::string result(text.substr(0, longest));
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  if (result.size() == text.size()) return result;
  while (!result.empty() && (result.back() & 0xC0) == 0x80) result.pop_back();
  if (!result.empty() && (result.back() & 0x80) != 0) result.pop_back();
  return result + "...";
}

}  // namespace xtape
