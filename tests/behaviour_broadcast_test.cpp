// Broadcasting in backward, lazy expressions and views as inputs (cases O22, O33 and O34).

#include <functional>
#include <numeric>
#include <xtensor/xbroadcast.hpp>
#include <xtensor/xmanipulation.hpp>
#include <xtensor/xstrided_view.hpp>
#include <xtensor/xview.hpp>

#include "behaviour.hpp"

namespace xtape::behaviour_broadcast_test {
namespace {

TEST(Behaviour, O22_BroadcastInBackward) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const xt::xarray<T> upstream = {{1, 2, 3}, {4, 5, 6}};
    Tape<T> tape;
    const Var<T> x = tape.input(column<T>({1, 2}), true);
    const Var<T> row = tape.input(xt::xarray<T>{{1, 2, 3}}, true), flat = tape.input(xt::xarray<T>{1, 2, 3}, true);
    tape.backward(x + row, upstream);
    EXPECT_EQ(gradient(x), column<T>({6, 15}));
    EXPECT_EQ(gradient(row), (xt::xarray<T>{{5, 7, 9}}));
    tape.backward(x + flat, upstream);
    EXPECT_EQ(gradient(flat), (xt::xarray<T>{5, 7, 9}));
    const Var<T> scalar = tape.input(T(1), true);
    tape.backward(tape.input(upstream) + scalar, upstream);
    EXPECT_EQ(scalar.grad()(), T(21));
  });
}

/// The sum of full over the axes along which an operand of this shape was stretched.
template <class T>
xt::xarray<T> summed_to(const xt::xarray<T>& full, const Shape& shape) {
  xt::xarray<T> result = zeros_of<T>(shape);
  const std::size_t missing = full.dimension() - shape.rank();
  for (std::size_t i = 0; i < full.size(); ++i) {
    std::vector<std::size_t> place(shape.rank());
    std::size_t rest = i;
    for (std::size_t axis = full.dimension(); axis-- > 0; rest /= full.shape(axis)) {
      const std::size_t at = rest % full.shape(axis);
      if (axis >= missing) place[axis - missing] = shape[axis - missing] == 1 ? 0 : at;
    }
    result.element(place.begin(), place.end()) += full.flat(i);
  }
  return result;
}

/// x stretched to the full shape.
template <class T>
xt::xarray<T> stretched_to(const xt::xarray<T>& x, const Shape& full) {
  xt::xarray<T> result = zeros_of<T>(full);
  const std::size_t missing = full.rank() - x.dimension();
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::vector<std::size_t> place(x.dimension());
    std::size_t rest = i;
    for (std::size_t axis = full.rank(); axis-- > 0; rest /= full[axis])
      if (axis >= missing) place[axis - missing] = x.shape(axis - missing) == 1 ? 0 : rest % full[axis];
    result.flat(i) = x.element(place.begin(), place.end());
  }
  return result;
}

/// Compares op on broadcast operands with op on operands that were stretched beforehand.
template <class T>
void check_broadcast(const std::function<Var<T>(Var<T>, Var<T>)>& op, const Shape& a_shape, const Shape& b_shape) {
  SCOPED_TRACE(fmt::format("{} and {}", a_shape, b_shape));
  const Shape full = broadcast("test", a_shape, b_shape);
  const xt::xarray<T> a_values = random_array<T>(a_shape, 1, 1, 3), b_values = random_array<T>(b_shape, 2, T(.2), 2);
  const xt::xarray<T> dy = random_array<T>(full, 3);
  Tape<T> tape;
  const Var<T> a = tape.input(a_values, true), b = tape.input(b_values, true);
  const Var<T> wide_a = tape.input(stretched_to(a_values, full), true);
  const Var<T> wide_b = tape.input(stretched_to(b_values, full), true);
  const Var<T> y = op(a, b), expected = op(wide_a, wide_b);
  tape.backward(y, dy);
  tape.backward(expected, dy);
  EXPECT_TRUE(near(array(y), array(expected), tolerance::two_paths<T>));
  EXPECT_TRUE(near(gradient(a), summed_to(gradient(wide_a), a_shape), tolerance::two_paths<T>));
  EXPECT_TRUE(near(gradient(b), summed_to(gradient(wide_b), b_shape), tolerance::two_paths<T>));
}

TEST(Behaviour, O22_EveryOperatorInBothOrders) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const std::pair<Shape, Shape> shapes[] = {{{2, 1}, {1, 3}},       {{2, 1}, {3}},       {{2, 3}, {}},
                                              {{2, 3, 4}, {3, 1}},    {{2, 1, 4}, {3, 4}}, {{5, 1, 3, 1}, {2, 1, 4}},
                                              {{1, 1, 1, 1}, {2, 3}}, {{17}, {1}},         {{2, 3}, {2, 3}}};
    for (const auto& [a, b] : shapes)
      for (const auto& [first, second] : {std::pair(a, b), std::pair(b, a)}) {
        check_broadcast<T>([](Var<T> x, Var<T> y) { return x + y; }, first, second);
        check_broadcast<T>([](Var<T> x, Var<T> y) { return x - y; }, first, second);
        check_broadcast<T>([](Var<T> x, Var<T> y) { return x * y; }, first, second);
        check_broadcast<T>([](Var<T> x, Var<T> y) { return x / y; }, first, second);
        check_broadcast<T>([](Var<T> x, Var<T> y) { return maximum(x, y); }, first, second);
        check_broadcast<T>([](Var<T> x, Var<T> y) { return pow(x, y); }, first, second);
        const Shape full = broadcast("test", first, second);
        xt::xarray<bool> chosen = zeros_of<bool>(full);
        for (std::size_t i = 0; i < chosen.size(); ++i) chosen.flat(i) = i % 3 == 0;
        check_broadcast<T>([&](Var<T> x, Var<T> y) { return where(chosen, x, y); }, first, second);
      }
  });
}

TEST(Behaviour, O22_WhereOfBroadcastOperands) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const xt::xarray<T> upstream = {{1, 2, 3}, {4, 5, 6}};
    const xt::xarray<bool> chosen = {{true, false, true}, {false, false, true}};
    Tape<T> tape;
    const Var<T> x = tape.input(column<T>({1, 2}), true), b = tape.input(xt::xarray<T>{7, 8, 9}, true);
    tape.backward(where(chosen, x, b), upstream);
    EXPECT_EQ(gradient(x), column<T>({4, 6}));
    EXPECT_EQ(gradient(b), (xt::xarray<T>{4, 7, 0}));
  });
}

TEST(Behaviour, O22_NumbersAndParametersOnEitherSide) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    const Var<T> x = tape.input(xt::xarray<T>{1, 2, 4}, true);
    const auto slope = [&](Var<T> y) {
      const xt::xarray<T> before = x.grad();
      tape.backward(sum(y));
      const xt::xarray<T> added = x.grad() - before;
      return added;
    };
    EXPECT_EQ(slope(x + 2), (xt::xarray<T>{1, 1, 1}));
    EXPECT_EQ(slope(2 + x), (xt::xarray<T>{1, 1, 1}));
    EXPECT_EQ(slope(x - 2), (xt::xarray<T>{1, 1, 1}));
    EXPECT_EQ(slope(2 - x), (xt::xarray<T>{-1, -1, -1}));
    EXPECT_EQ(slope(x * 2), (xt::xarray<T>{2, 2, 2}));
    EXPECT_EQ(slope(2 * x), (xt::xarray<T>{2, 2, 2}));
    EXPECT_EQ(slope(x / 2), (xt::xarray<T>{T(.5), T(.5), T(.5)}));
    EXPECT_EQ(slope(2 / x), (xt::xarray<T>{-2, T(-.5), T(-.125)}));
    EXPECT_EQ(slope(-x), (xt::xarray<T>{-1, -1, -1}));

    auto p = parameter_of(column<T>({1, 2}));
    tape.backward(p - x, ones_of<T>({2, 3}));
    tape.backward(x * p, ones_of<T>({2, 3}));
    EXPECT_EQ(xt::xarray<T>(p.grad()), column<T>({3 + 7, 3 + 7}));
  });
}

/// Returns by value, so the array dies at the end of the full expression that it stands in.
template <class T>
xt::xarray<T> temporary(std::initializer_list<double> values) {
  xt::xarray<T> result = zeros_of<T>({values.size()});
  std::copy(values.begin(), values.end(), result.begin());
  return result;
}

template <class T>
Var<T> log_sum_exp(Var<T> x) {
  return log(sum(exp(x)));
}

/// What a user writes: a Var from an unevaluated expression of temporaries and of a local number.
template <class T>
Var<T> from_temporaries(Tape<T>& tape) {
  const T offset = 0;
  return tape.input(temporary<T>({-.042808, -.042504, -.043407, -.047227}) + offset, true);
}

TEST(Behaviour, O33_NoLazyExpressionOutlivesItsOperands) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    const Var<T> x = from_temporaries(tape);
    const auto other = temporary<T>({9, 9, 9, 9});  // may take the memory of what has died
    EXPECT_NEAR(log_sum_exp(x).item(), 1.3423096628, tolerance::behaviour<T>);
    EXPECT_EQ(other(0), T(9));
    tape.backward(log_sum_exp(tape.input(temporary<T>({0, 0}) * T(2), true)));
  });
}

TEST(Behaviour, O33_ExpressionsAreEvaluatedOnEntry) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    xt::xarray<T> source = {1, 2, 3};
    xt::xarray<int> tokens = {0, 1, 2};
    xt::xarray<bool> allowed = {true, false, true};
    const Var<T> x = tape.input(source * T(2));
    const Integers indices = tape.integers(tokens + 1);
    const Mask mask = tape.mask(!allowed);
    source.fill(T(100)), tokens.fill(100), allowed.fill(true);
    EXPECT_EQ(array(x), (xt::xarray<T>{2, 4, 6}));
    EXPECT_EQ(indices.data[2], 3);
    EXPECT_EQ(mask.data[1], 1);

    const Var<T> w = tape.input(xt::xarray<T>{1, 2, 3}, true);
    tape.backward(w, temporary<T>({1, 2, 3}) + T(1));
    EXPECT_EQ(gradient(w), (xt::xarray<T>{2, 3, 4}));
  });
}

TEST(Behaviour, O34_ColumnsAndReversedColumnsInAProduct) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const xt::xarray<T> a = {{2, 3}, {5, 7}, {11, 13}};
    Tape<T> tape;
    const Var<T> left = tape.input(xt::col(a, 0));
    const Var<T> right = tape.input(xt::view(xt::col(a, 1), xt::range(xt::placeholders::_, xt::placeholders::_, -1)));
    EXPECT_EQ(matmul(left, right).item(), T(94));

    Var<T> x = tape.input(xt::xarray<T>{{0, 1, 1, 1}});
    x = transpose(x);
    EXPECT_EQ(array(x), column<T>({0, 1, 1, 1}));
    xt::xarray<T> y = {{0, 1, 1, 1}};
    EXPECT_EQ(array(tape.input(xt::transpose(y))), column<T>({0, 1, 1, 1}));
  });
}

/// Values and gradients of ops on x, all of them the same for the same numbers.
template <class Upstream>
std::array<xt::xarray<double>, 4> results(Tape<double>& tape, Var<double> x, const Upstream& upstream) {
  const Var<double> w = tape.input(random_array<double>({3, x.shape()[1]}, 5), true);
  const Var<double> y = linear(softmax(layer_norm(x)), w) + matmul(x, transpose(w));
  tape.backward(y, upstream);
  return {array(x), array(y), gradient(x), gradient(w)};
}

void check_against_copy(const xt::xarray<double>& copy, const std::function<Var<double>(Tape<double>&)>& input) {
  const xt::xarray<double> dy = random_array<double>({copy.shape(0), 3}, 6), turned = xt::transpose(dy);
  Tape<double> tape;
  const auto expected = results(tape, tape.input(copy, true), dy);
  EXPECT_EQ(expected[0], copy);
  EXPECT_EQ(results(tape, input(tape), dy), expected);
  EXPECT_EQ(results(tape, tape.input(copy, true), xt::transpose(turned)), expected);  // dy as a view
}

/// Ops on a view of rank 2 and on its contiguous copy must agree bit for bit.
template <class View>
void check_view(const char* name, const View& view) {
  SCOPED_TRACE(name);
  xt::xarray<double> copy = zeros_of<double>(Shape(view.shape()));
  std::copy(view.begin(), view.end(), copy.begin());
  check_against_copy(copy, [&view](Tape<double>& tape) { return tape.input(view, true); });
}

TEST(Behaviour, O34_EveryKindOfViewAgainstItsCopy) {
  using xt::placeholders::_;
  const xt::xarray<double> a = random_array<double>({6, 10}, 7), row = random_array<double>({10}, 8),
                           column = random_array<double>({6, 1}, 9);
  const xt::xarray<double> cube = random_array<double>({4, 6, 5}, 10);
  const xt::xarray<double, xt::layout_type::column_major> fortran = a;
  check_view("contiguous", a);
  check_view("transposed", xt::transpose(a));
  check_view("every second row and third column", xt::view(a, xt::range(0, 6, 2), xt::range(1, 10, 3)));
  check_view("rows reversed", xt::view(a, xt::range(_, _, -1), xt::all()));
  check_view("columns reversed", xt::flip(a, 1));
  check_view("both reversed by twos", xt::view(a, xt::range(_, _, -2), xt::range(_, _, -2)));
  check_view("transposed block", xt::transpose(xt::view(a, xt::range(1, 5), xt::range(2, 9))));
  check_view("an axis of a cube", xt::view(cube, xt::all(), 3, xt::all()));
  check_view("broadcast row", xt::broadcast(row, {6, 10}));
  check_view("broadcast column", xt::broadcast(column, {6, 10}));
  check_view("strided view", xt::strided_view(a, {xt::range(1, 5, 2), xt::range(0, 10, 4)}));
  check_view("column-major", fortran);
  check_view("expression of views", xt::transpose(a) + 2. * xt::flip(xt::transpose(a), 0));
  check_view("a column and a row", xt::view(a, xt::all(), xt::range(3, 4)) * xt::view(row, xt::newaxis(), xt::all()));
}

TEST(Behaviour, O34_ViewsOfTokensAndMasks) {
  const xt::xarray<int> tokens = {{0, 1, 2}, {3, 4, 5}};
  Tape<double> tape;
  const Integers turned = tape.integers(xt::transpose(tokens)), reversed = tape.integers(xt::flip(tokens, 1));
  EXPECT_EQ(turned.shape, (Shape{3, 2}));
  EXPECT_EQ(std::vector<std::int64_t>(turned.data, turned.data + 6), (std::vector<std::int64_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(std::vector<std::int64_t>(reversed.data, reversed.data + 6), (std::vector<std::int64_t>{2, 1, 0, 5, 4, 3}));
  const Mask mask = tape.mask(xt::transpose(xt::xarray<bool>(tokens > 2)));
  EXPECT_EQ(std::vector<int>(mask.data, mask.data + 6), (std::vector<int>{0, 1, 0, 1, 0, 1}));
}

}  // namespace
}  // namespace xtape::behaviour_broadcast_test
