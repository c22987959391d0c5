#include "attention_walkthrough/page.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "common/utf8.hpp"

namespace examples {

namespace {

constexpr std::size_t margin = 3;  // columns left of everything but titles
constexpr std::size_t number_columns = 8;

bool colours() {
  return ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;  // https://no-color.org
}

std::string without_blanks_at_its_end(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

void print_bold(const std::string& line) {
  const char* const form = colours() ? "\033[1m{}\033[0m\n" : "{}\n";
  fmt::print(fmt::runtime(form), without_blanks_at_its_end(line));
}

std::string right_aligned(const std::string& text, std::size_t width) {
  const std::size_t taken = display_width(text);
  return std::string(taken < width ? width - taken : 0, ' ') + text;
}

std::size_t widest(const Labels& labels) {
  std::size_t width = 0;
  for (const std::string& label : labels) width = std::max(width, display_width(label));
  return width;
}

/// The panel as lines of equal width: its name, the labels of its columns, its rows.
Labels lines_of(const Panel& panel, std::size_t most_columns) {
  const auto rows = shown_places(panel.matrix.shape(0), most_rows);
  const auto columns = shown_places(panel.matrix.shape(1), most_columns);
  const std::size_t label_width = widest(panel.rows);
  const auto line = [&](const std::string& label, const auto& cell) {
    std::string text = padded(label, label_width);
    for (const std::size_t j : columns) text += j == gap ? " .." : right_aligned(cell(j), number_columns);
    return text;
  };
  Labels lines = {panel.name};
  if (!panel.columns.empty()) lines.push_back(line("", [&](std::size_t j) { return panel.columns[j]; }));
  for (const std::size_t i : rows) {
    if (i == gap)
      lines.push_back(padded("", label_width) + "      ..");
    else
      lines.push_back(line(panel.rows.empty() ? "" : panel.rows[i],
                           [&](std::size_t j) { return number_text(panel.matrix(i, j)); }));
  }
  const std::size_t width = widest(lines);
  for (std::string& text : lines) text = padded(text, width);
  return lines;
}

}  // namespace

Matrix matrix_of(xtape::Var<double> x, std::size_t head) {
  const xtape::Shape shape = x.shape();
  const std::size_t rank = shape.rank(), rows = rank < 2 ? 1 : shape[rank - 2], columns = shape.back();
  Matrix matrix = Matrix::from_shape({rows, columns});
  std::copy_n(x.data() + head * rows * columns, rows * columns, matrix.begin());
  return matrix;
}

Labels numbered(std::size_t count) {
  Labels labels;
  for (std::size_t i = 0; i < count; ++i) labels.push_back(std::to_string(i));
  return labels;
}

void print_line(const std::string& line) { fmt::print("{}\n", without_blanks_at_its_end(line)); }

void print_chapter(const std::string& title) {
  fmt::print("\n");
  print_bold(title);
  print_line(std::string(page_width, '='));
}

void print_step(const std::string& name, const std::string& formula, const std::string& shapes) {
  fmt::print("\n");
  print_bold(padded(padded(name + "  ", 26) + formula + "  ", 62) + shapes);
}

void print_text(const std::string& text) {
  std::istringstream words(text);
  std::string line(margin, ' ');
  for (std::string word; words >> word;) {
    const bool first = line.size() == margin;
    if (!first && display_width(line) + 1 + display_width(word) > page_width) {
      print_line(line);
      line = std::string(margin, ' ') + word;
    } else {
      line += first ? word : " " + word;
    }
  }
  if (line.size() > margin) print_line(line);
}

std::string number_text(double x, int decimals) {
  std::string text = fmt::format("{:.{}f}", x, decimals);
  const bool zero = text.find_first_not_of("-0.") == std::string::npos;
  return zero && text[0] == '-' ? text.substr(1) : text;
}

std::string at_most(double difference) {
  return difference < 1e-12 ? "less than 1e-12" : fmt::format("{:.0e}", difference);
}

std::vector<std::size_t> shown_places(std::size_t count, std::size_t most) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < count; ++i) {
    if (count <= most || i < most - 2 || i == count - 1)
      places.push_back(i);
    else if (i == most - 2)
      places.push_back(gap);
  }
  return places;
}

void print_matrix(const Panel& panel) {
  for (const std::string& line : lines_of(panel, 11)) print_line(std::string(margin, ' ') + line);
}

void print_beside(const Panel& left, const Panel& right) {
  const Labels on_the_left = lines_of(left, most_columns_beside), on_the_right = lines_of(right, most_columns_beside);
  for (std::size_t i = 0; i < on_the_left.size(); ++i)
    print_line(std::string(margin, ' ') + on_the_left[i] + "   " + on_the_right[i]);
}

void print_heat_maps(const std::vector<Matrix>& heads, const Labels& tokens) {
  // From dark blue to yellow in the terminal's palette of 256, by the root of a weight: most weights are small.
  constexpr int ramp[] = {17, 18, 19, 25, 31, 37, 36, 72, 71, 107, 143, 179, 178, 214, 220, 226};
  const bool in_colour = colours();
  const auto cell = [&](double weight) -> std::string {
    if (weight == 0) return "· ";
    if (in_colour) {
      const double steps = static_cast<double>(std::size(ramp));
      return fmt::format("\033[48;5;{}m  \033[0m", ramp[static_cast<std::size_t>(std::sqrt(weight) * (steps - 0.01))]);
    }
    return weight > 0.5 ? "██" : weight > 0.25 ? "▓▓" : weight > 0.125 ? "▒▒" : weight > 0.0625 ? "░░" : "░ ";
  };
  const std::size_t label_width = std::max<std::size_t>(widest(tokens), 2) + 1;
  const std::size_t map_width = label_width + 2 * tokens.size() + 3;
  const std::size_t in_a_row = std::max<std::size_t>(1, (page_width - margin) / map_width);

  for (std::size_t first = 0; first < heads.size(); first += in_a_row) {
    const std::size_t last = std::min(first + in_a_row, heads.size());
    const auto line = [&](const auto& part) {
      std::string text(margin, ' ');
      for (std::size_t head = first; head < last; ++head) text += part(head);
      print_line(text);
    };
    fmt::print("\n");
    line([&](std::size_t head) { return padded(fmt::format("head {}", head), map_width); });
    line([&](std::size_t) {
      std::string keys(label_width, ' ');
      for (const std::string& token : tokens) keys += padded(token, 2);
      return padded(keys, map_width);
    });
    for (std::size_t i = 0; i < tokens.size(); ++i)
      line([&](std::size_t head) {
        std::string text = padded(tokens[i], label_width);
        for (std::size_t j = 0; j < tokens.size(); ++j) text += cell(heads[head](i, j));
        return text + "   ";
      });
  }
  fmt::print("\n");
  std::string legend = "0 ";
  for (const int colour : ramp) legend += fmt::format("\033[48;5;{}m  \033[0m", colour);
  print_line(std::string(margin, ' ') + (in_colour ? legend + " 1, by the root   · hidden"
                                                   : "above 1/2 ██   1/4 ▓▓   1/8 ▒▒   1/16 ░░   0 ░    hidden ·"));
}

}  // namespace examples
