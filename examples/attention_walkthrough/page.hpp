#pragma once
// How the walk-through sets its page: titles, paragraphs and matrices within 100 columns, and a heat map.

#include <string>
#include <vector>

#include <xtape/framework/tape/expr.hpp>
#include <xtensor/xtensor.hpp>

namespace examples {

inline constexpr std::size_t page_width = 100;

using Matrix = xt::xtensor<double, 2>;
using Labels = std::vector<std::string>;

/// One matrix of a value on a tape: all of (rows, columns), the given head of (heads, rows, columns), or a vector as
/// one row.
Matrix matrix_of(xtape::Var<double> x, std::size_t head = 0);
/// "0", "1", ...
Labels numbered(std::size_t count);

/// One line, without blanks at its end.
void print_line(const std::string& line);
/// The name of a chapter, alone on its line.
void print_chapter(const std::string& title);
/// A step's name, its formula and the shapes of what it takes and makes, on one line.
void print_step(const std::string& name, const std::string& formula, const std::string& shapes = "");
/// A paragraph, broken into lines, behind the margin.
void print_text(const std::string& text);
/// "0.1235"; never "-0.0000".
std::string number_text(double x, int decimals = 4);
/// A difference; what rounding may explain as "less than 1e-12", which is the same on every machine.
std::string at_most(double difference);

/// A matrix under its name. Of what is too large only the first and last rows and columns are shown.
struct Panel {
  std::string name;
  Matrix matrix;
  Labels rows, columns = {};  // no labels: none are shown
};
void print_matrix(const Panel& panel);
/// Two matrices side by side, the right one without labels of its own.
void print_beside(const Panel& left, const Panel& right);

/// Places of a row or column that are shown when at most `most` are: the first ones, `gap`, the last.
inline constexpr std::size_t gap = ~std::size_t{0};
std::vector<std::size_t> shown_places(std::size_t count, std::size_t most);
/// Rows at most, and columns of one of two matrices that stand side by side.
inline constexpr std::size_t most_rows = 9, most_columns_beside = 5;

/// Weights from 0 to 1 of several heads, dark to bright: colours on a terminal, shades elsewhere.
void print_heat_maps(const std::vector<Matrix>& heads, const Labels& tokens);

}  // namespace examples
