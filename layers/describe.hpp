#pragma once

#include <algorithm>
#include <string>
#include <type_traits>

#include <xtape/framework/nn/parameter_list.hpp>

namespace xtape {

/// A model as a table: a line for each parameter with its shape, its role and its number of elements, and the total. A
/// tied parameter counts once.
template <class Module>
std::string describe(Module& module) {
  struct Line {
    std::string name, shape, role;
    std::size_t size;
    const void* data;
  };
  std::vector<Line> lines;
  const auto found = [&]<class Member>(const std::string& name, Member& p) {
    if constexpr (detail::is_parameter<Member>)
      if (std::none_of(lines.begin(), lines.end(), [&](const Line& line) { return line.data == p.data(); }))
        lines.push_back({name, to_string(p.shape()), std::string(to_string(p.role())) + (p.frozen() ? ", frozen" : ""),
                         p.size(), p.data()});
  };
  detail::walk("", module, found);

  std::size_t names = 5, shapes = 0, roles = 0, total = 0;
  for (const Line& line : lines) {
    names = std::max(names, line.name.size());
    shapes = std::max(shapes, line.shape.size());
    roles = std::max(roles, line.role.size());
    total += line.size;
  }
  std::string text;
  for (const Line& line : lines)
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>9}\n", line.name, names, line.shape, shapes, line.role, roles,
                        line.size);
  return text + fmt::format("{:<{}}  {:>9}\n", "total", names + shapes + roles + 4, total);
}

}  // namespace xtape
