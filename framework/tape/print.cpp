#include <xtape/framework/tape/print.hpp>

#include <fmt/format.h>

namespace xtape {
namespace {

constexpr std::size_t longest = 8, shown_at_each_end = 3;

template <class T>
void print_axis(std::string& text, const T* data, const Shape& shape, std::size_t axis, std::size_t stride) {
  if (axis == shape.rank()) {
    fmt::format_to(std::back_inserter(text), "{:.6g}", data[0]);
    return;
  }
  const std::size_t n = shape[axis], step = n == 0 ? 0 : stride / n;
  text += "[";
  for (std::size_t i = 0; i < n; ++i) {
    if (i > 0) text += ", ";
    if (n > longest && i == shown_at_each_end) {
      text += "..., ";
      i = n - shown_at_each_end;
    }
    print_axis(text, data + i * step, shape, axis + 1, step);
  }
  text += "]";
}

}  // namespace

template <class T>
std::string array_to_string(const T* data, const Shape& shape) {
  std::string text;
  print_axis(text, data, shape, 0, shape.size());
  return text;
}

template std::string array_to_string(const float*, const Shape&);
template std::string array_to_string(const double*, const Shape&);

}  // namespace xtape
