#pragma once

#include <algorithm>
#include <string>
#include <type_traits>

#include <xtape/framework/nn/parameter_list.hpp>

namespace xtape {

namespace detail {

/// The lines of a table of parameters, each once. (A type of its own, as Lister.)
class Description {
 public:
  template <class Member>
  void operator()(const std::string& name, Member& p) {
    if constexpr (is_parameter<Member>)
      add({name, to_string(p.shape()), std::string(to_string(p.role())) + (p.frozen() ? ", frozen" : ""), p.size(),
           p.data()});
  }
  std::string text() const {
    std::size_t names = 5, shapes = 0, roles = 0, total = 0;
    for (const Line& line : lines_) {
      names = std::max(names, line.name.size());
      shapes = std::max(shapes, line.shape.size());
      roles = std::max(roles, line.role.size());
      total += line.size;
    }
    std::string text;
    for (const Line& line : lines_)
      text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>9}\n", line.name, names, line.shape, shapes, line.role, roles,
                          line.size);
    return text + fmt::format("{:<{}}  {:>9}\n", "total", names + shapes + roles + 4, total);
  }

 private:
  struct Line {
    std::string name, shape, role;
    std::size_t size;
    const void* data;
  };
  void add(Line line) {
    if (std::none_of(lines_.begin(), lines_.end(), [&](const Line& other) { return other.data == line.data; }))
      lines_.push_back(std::move(line));
  }
  std::vector<Line> lines_;
};

}  // namespace detail

/// A model as a table: a line for each parameter with its shape, its role and its number of elements, and the total. A
/// tied parameter counts once.
template <class Module>
std::string describe(Module& module) {
  detail::Description description;
  detail::walk("", module, description);
  return description.text();
}

}  // namespace xtape
