// Shapes, broadcasting and axes: the arithmetic that every op rests on.

#include "support.hpp"

namespace xtape::shape_test {
namespace {

TEST(Shape, CountsElementsRowsAndTheLastExtent) {
  const Shape scalar, empty{2, 0, 3}, matrix{4, 5}, full{2, 3, 4, 5};
  EXPECT_EQ(scalar.rank(), 0u);
  EXPECT_EQ(scalar.size(), 1u);
  EXPECT_EQ(scalar.rows(), 1u);
  EXPECT_EQ(scalar.back(), 1u);
  EXPECT_EQ(empty.size(), 0u);
  EXPECT_EQ(empty.rows(), 0u);
  EXPECT_EQ(matrix.rows(), 4u);
  EXPECT_EQ(full.size(), 120u);
  EXPECT_EQ(full.rows(), 24u);
  EXPECT_EQ(full.back(), 5u);
}

TEST(Shape, ComparesRankAndExtents) {
  EXPECT_EQ(Shape({2, 3}), Shape(std::vector<int>{2, 3}));
  EXPECT_NE(Shape({2, 3}), Shape({3, 2}));
  EXPECT_NE(Shape({2}), Shape({2, 0})) << "an unused extent is no extent of 0";
  EXPECT_NE(Shape({}), Shape({1})) << "a scalar is no vector of one element";
}

TEST(Shape, WithBackReplacesTheLastExtentAlone) {
  EXPECT_EQ(Shape({2, 3}).with_back(7), Shape({2, 7}));
  EXPECT_EQ(Shape({}).with_back(7), Shape({}));
}

TEST(Shape, RefusesARankAboveFour) {
  EXPECT_NO_THROW(Shape({1, 2, 3, 4}));
  expect_message<ShapeError>([] { Shape({1, 2, 3, 4, 5}); }, {"[shape]", "rank must be at most 4"});
  Shape shape{1, 2, 3, 4};
  EXPECT_THROW(shape.push_back(5), ShapeError);
  EXPECT_EQ(shape, Shape({1, 2, 3, 4})) << "a refused extent leaves the shape as it was";
}

TEST(Shape, RefusesMoreElementsThanMemoryCanHold) {
  const std::size_t huge = std::size_t{1} << 32;  // huge * huge is 0 in 64 bits
  expect_message<ShapeError>([&] { Shape({huge, huge}).size(); }, {"[shape]", "4294967296"});
  EXPECT_THROW(Shape({huge, huge, 2}).size(), ShapeError);
  EXPECT_EQ(Shape({huge, 0, huge}).size(), 0u) << "an extent of 0 makes any shape empty";
  EXPECT_EQ(Shape({huge, huge, 0}).size(), 0u);
}

TEST(Broadcast, FollowsNumPy) {
  EXPECT_EQ(broadcast("op", {2, 3}, {2, 3}), Shape({2, 3}));
  EXPECT_EQ(broadcast("op", {2, 1}, {1, 3}), Shape({2, 3}));
  EXPECT_EQ(broadcast("op", {4, 2, 3}, {3}), Shape({4, 2, 3}));
  EXPECT_EQ(broadcast("op", {}, {2, 3}), Shape({2, 3}));
  EXPECT_EQ(broadcast("op", {1}, {0}), Shape({0})) << "1 stretches to 0";
  EXPECT_EQ(broadcast("op", {5, 0, 1}, {1, 7}), Shape({5, 0, 7}));
}

TEST(Broadcast, NamesTheOpAndBothShapesWhenTheyDoNotFit) {
  expect_message<ShapeError>([] { broadcast("op", {2, 3}, {4}); }, {"[op]", "(2, 3)", "(4,)"});
  EXPECT_THROW(broadcast("op", {2}, {0}), ShapeError);
  EXPECT_THROW(broadcast("op", {2, 3}, {3, 2}), ShapeError);
}

TEST(Axes, CountFromTheEndWhenNegative) {
  EXPECT_EQ(resolve_axis("op", 0, 3), 0u);
  EXPECT_EQ(resolve_axis("op", -1, 3), 2u);
  EXPECT_EQ(resolve_axis("op", -3, 3), 0u);
  const auto resolved = Axes({-1, 0}).resolve("op", 3);
  EXPECT_EQ(resolved[0], 2u);
  EXPECT_EQ(resolved[1], 0u);
}

TEST(Axes, RefuseWhatIsOutOfRangeOrNamedTwice) {
  expect_message<ShapeError>([] { resolve_axis("op", 3, 3); }, {"[op]", "[-3, 3)", "got 3"});
  expect_message<ShapeError>([] { resolve_axis("op", -4, 3); }, {"[op]", "got -4"});
  expect_message<ShapeError>([] { resolve_axis("op", 0, 0); }, {"[op]"});
  expect_message<ShapeError>([] { Axes({0, -2}).resolve("op", 2); }, {"[op]", "axis 0 twice"});
  EXPECT_THROW(Axes({0, 1, 2, 3, 4}), ShapeError);
}

}  // namespace
}  // namespace xtape::shape_test
