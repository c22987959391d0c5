#include <xtape/framework/train/misfit.hpp>

#include <fmt/format.h>

#include <algorithm>

#include <xtape/framework/base/excerpt.hpp>

namespace xtape {

std::string Misfit::text() const {
  constexpr std::size_t most = 100;
  std::string text;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", what, fmt::join(names, ", "));
  };
  std::vector<std::string> shown;
  for (std::size_t i = 0; i < std::min(most, extra.size()); ++i) shown.push_back(excerpt(extra[i]));
  if (extra.size() > most) shown.push_back(fmt::format("and {} more", extra.size() - most));
  add("missing", missing);
  add("not in the model", shown);
  add("of another shape", misshapen);
  return text;
}

}  // namespace xtape
