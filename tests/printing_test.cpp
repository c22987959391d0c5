// What fmt and streams write for shapes, values and parameters.

#include <fmt/format.h>

#include <sstream>

#include "support.hpp"

namespace xtape::printing_test {
namespace {

/// The text of a stream, after checking that fmt writes the same.
template <class X>
std::string printed(const X& x) {
  std::ostringstream out;
  out << x;
  EXPECT_EQ(out.str(), fmt::format("{}", x));
  EXPECT_EQ(out.str(), to_string(x));
  return out.str();
}

TEST(Printing, ShapesLookAsInNumPy) {
  EXPECT_EQ(printed(Shape{}), "()");
  EXPECT_EQ(printed(Shape{3}), "(3,)");
  EXPECT_EQ(printed(Shape{2, 0}), "(2, 0)");
  EXPECT_EQ(printed(Shape{2, 3, 4, 5}), "(2, 3, 4, 5)");
}

TEST(Printing, AVarShowsItsOpShapeAndNumbersForEveryRank) {
  Tape<double> tape;
  EXPECT_EQ(printed(tape.input(2.5)), "input (): 2.5");
  EXPECT_EQ(printed(tape.input(xt::xarray<double>{1, -2})), "input (2,): [1, -2]");
  const auto matrix = tape.input(xt::xarray<double>{{1, 2}, {3, 4}});
  EXPECT_EQ(printed(matrix), "input (2, 2): [[1, 2], [3, 4]]");
  EXPECT_EQ(printed(reshape(matrix, {2, 1, 2})), "reshape (2, 1, 2): [[[1, 2]], [[3, 4]]]");
  EXPECT_EQ(printed(reshape(matrix, {1, 2, 2, 1})), "reshape (1, 2, 2, 1): [[[[1], [2]], [[3], [4]]]]");
  EXPECT_EQ(printed(sum(matrix)), "sum (): 10");
}

TEST(Printing, EmptyArraysShowTheirAxes) {
  Tape<double> tape;
  EXPECT_EQ(printed(tape.input(zeros_of<double>({0}))), "input (0,): []");
  EXPECT_EQ(printed(tape.input(zeros_of<double>({2, 0}))), "input (2, 0): [[], []]");
  EXPECT_EQ(printed(tape.input(zeros_of<double>({0, 2}))), "input (0, 2): []");
}

TEST(Printing, LongAxesShowTheirEnds) {
  Tape<double> tape;
  EXPECT_EQ(printed(tape.input(xt::arange<double>(8))), "input (8,): [0, 1, 2, 3, 4, 5, 6, 7]");
  EXPECT_EQ(printed(tape.input(xt::arange<double>(9))), "input (9,): [0, 1, 2, ..., 6, 7, 8]");
  const auto long_rows = tape.input(xt::arange<double>(1000));
  EXPECT_EQ(printed(reshape(long_rows, {100, 10})).substr(0, 61),
            "reshape (100, 10): [[0, 1, 2, ..., 7, 8, 9], [10, 11, 12, ...");
  EXPECT_LT(printed(reshape(long_rows, {10, 10, 10})).size(), 2500u);
}

TEST(Printing, NumbersThatAreNotFiniteHaveNames) {
  Tape<float> tape;
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(printed(tape.input(xt::xarray<float>{infinity, -infinity, std::nanf("")})), "input (3,): [inf, -inf, nan]");
}

TEST(Printing, AParameterShowsItsRole) {
  Parameter<float> weight({2, 2});
  weight.write() = xt::xarray<float>{{0.5f, 1}, {2, 3}};
  EXPECT_EQ(printed(weight), "weight (2, 2): [[0.5, 1], [2, 3]]");
  EXPECT_EQ(printed(Parameter<float>({2}, Role::bias)), "bias (2,): [0, 0]");
  EXPECT_EQ(printed(Parameter<float>({}, Role::gain)), "gain (): 0");
  EXPECT_EQ(printed(Parameter<float>({0, 3}, Role::embedding)), "embedding (0, 3): []");
}

TEST(Printing, AVarThatIsGoneIsRefused) {
  Tape<double> tape;
  const auto x = tape.input(1.0);
  tape.clear();
  EXPECT_THROW(to_string(x), TapeError);
  EXPECT_THROW(to_string(Var<double>()), TapeError);
}

}  // namespace
}  // namespace xtape::printing_test
