// Parameters: the arrays that outlive the tapes.

#include "support.hpp"

namespace xtape::parameter_test {
namespace {

TEST(Parameter, StartsAtZeroWithoutAGradient) {
  Parameter<float> p({2, 3}, Role::gain);
  EXPECT_EQ(p.shape(), Shape({2, 3}));
  EXPECT_EQ(p.role(), Role::gain);
  EXPECT_FALSE(p.has_grad());
  EXPECT_FALSE(p.frozen());
  EXPECT_EQ(p.version(), 0u);
  for (float x : p.value()) EXPECT_EQ(x, 0.0f);
}

TEST(Parameter, MemoryIsAlignedAndMayBeEmpty) {
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0}, Shape{5}, Shape{2, 3, 4, 5}}) {
    Parameter<double> p(shape);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p.data()) % alignment, 0u) << shape;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(p.grad_data()) % alignment, 0u) << shape;
    EXPECT_EQ(p.size(), shape.size());
  }
}

TEST(Parameter, RefusesMoreElementsThanMemoryCanHold) {
  const std::size_t huge = std::size_t{1} << 32;
  EXPECT_THROW(Parameter<float>({huge, huge}), ShapeError);
}

TEST(Parameter, EveryWriteIsANewVersionAndReadingIsNot) {
  Parameter<double> p({2});
  p.write() = xt::xarray<double>{1, 2};
  EXPECT_EQ(p.version(), 1u);
  EXPECT_EQ(p.value()(1), 2);
  p.write_data()[0] = 5;
  EXPECT_EQ(p.version(), 2u);
  static_cast<void>(p.value());
  static_cast<void>(p.grad());
  EXPECT_EQ(p.version(), 2u);
}

TEST(Parameter, AskingForTheGradientGivesItZerosOnce) {
  Parameter<double> p({2});
  p.grad()(0) = 3;
  EXPECT_TRUE(p.has_grad());
  EXPECT_EQ(p.grad()(0), 3) << "a second look does not clear";
  p.zero_grad();
  EXPECT_FALSE(p.has_grad());
  EXPECT_EQ(p.grad()(0), 0);
}

TEST(Parameter, ShareTiesTwoHandlesToOneArray) {
  Parameter<double> a({2});
  Parameter<double> b = a.share(), c({2});
  b.write()(0) = 7;
  b.grad()(1) = 2;
  b.freeze();
  EXPECT_TRUE(a.is(b));
  EXPECT_FALSE(a.is(c));
  EXPECT_EQ(a.value()(0), 7);
  EXPECT_EQ(a.grad()(1), 2);
  EXPECT_TRUE(a.frozen());
  EXPECT_EQ(a.version(), b.version());
}

TEST(Parameter, MovingKeepsTheArrayWhereItIs) {
  Parameter<double> a({2});
  const double* data = a.data();
  const Parameter<double> b = std::move(a);
  EXPECT_EQ(b.data(), data);
  static_assert(!std::is_copy_constructible_v<Parameter<double>>, "copying is spelled share()");
}

TEST(Parameter, TiedHandlesAddIntoOneGradient) {
  // y = w x through two handles of one parameter: dy/dw counts both uses.
  Parameter<double> w({1});
  const Parameter<double> tied = w.share();
  w.write()(0) = 3;
  Tape<double> tape;
  const auto x = tape.input(xt::xarray<double>{2});
  tape.backward(sum(x * w + x * tied));
  EXPECT_EQ(w.grad()(0), 4);
}

TEST(Parameter, AFrozenOneTakesPartInForwardAndGetsNoGradient) {
  Parameter<double> w({1});
  w.write()(0) = 3;
  w.freeze();
  Tape<double> tape;
  const auto x = tape.input(xt::xarray<double>{2}, true);
  const auto y = sum(x * w);
  EXPECT_EQ(y.item(), 6);
  tape.backward(y);
  EXPECT_EQ(x.grad()(0), 3);
  EXPECT_FALSE(w.has_grad());
  EXPECT_FALSE(tape.var(w).requires_grad());
  w.freeze(false);
  tape.clear();
  tape.backward(sum(tape.input(xt::xarray<double>{2}) * w));
  EXPECT_EQ(w.grad()(0), 2) << "thawed, it learns again";
}

TEST(Parameter, OneThatDiesBetweenForwardAndBackwardIsKeptByTheTape) {
  Tape<double> tape;
  const auto x = tape.input(xt::xarray<double>{2, 5}, true);
  Var<double> y;
  {
    Parameter<double> w({2});
    w.write() = xt::xarray<double>{3, 4};
    y = sum(x * w);
  }
  tape.backward(y);
  EXPECT_EQ(gradient(x), (xt::xarray<double>{3, 4}));
}

TEST(ParameterList, EntriesStayValidWhenTheModuleMoves) {
  Rng rng(1);
  std::optional<Linear<double>> first(std::in_place, 2, 3, rng);
  ParameterList<double> list = parameters<double>(*first);
  std::vector<Linear<double>> home;
  home.push_back(std::move(*first));
  first.reset();
  for (int i = 0; i < 5; ++i) home.emplace_back(2, 3, rng);  // the vector moves its elements as it grows

  Tape<double> tape;
  tape.backward(sum(home[0](tape.input(random_array<double>({4, 2}, 3)))));
  ASSERT_EQ(list.size(), 2u);
  for (auto& [name, parameter] : list) EXPECT_TRUE(parameter.has_grad()) << name;
  EXPECT_TRUE(list[0].parameter.is(home[0].weight));
  EXPECT_EQ(list[1].parameter.grad()(0), 4) << "the bias was added to four rows";
}

TEST(Parameter, BracesMeanAShape) {
  EXPECT_EQ(Parameter<float>({0}).shape(), Shape{0});
  EXPECT_EQ(Parameter<float>({2, 3}, Role::bias).shape(), (Shape{2, 3}));
}

}  // namespace
}  // namespace xtape::parameter_test
