// Scopes: what is made inside is released, what is kept outlives them.

#include "support.hpp"

namespace xtape::tape_scope_test {
namespace {

using Array = xt::xarray<double>;

TEST(Scope, ReleasesWhatWasMadeInside) {
  Tape<double> tape;
  const auto before = tape.input(1.0);
  const std::size_t size = tape.size(), values = tape.memory().values.now;
  Var<double> inside;
  {
    const auto scope = tape.scope();
    inside = before * 2;
    EXPECT_EQ(inside.item(), 2);
  }
  EXPECT_EQ(tape.size(), size);
  EXPECT_EQ(tape.memory().values.now, values);
  EXPECT_EQ(before.item(), 1);
  expect_message<TapeError>([&] { inside.value(); }, {"scope that has ended"});
  const auto next = before * 3;  // takes the place of the released one
  EXPECT_THROW(inside.value(), TapeError);
  EXPECT_EQ(next.item(), 3);
}

TEST(Scope, KeepsOneValue) {
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2});
  Var<double> kept;
  Var<double> lost;
  {
    auto scope = tape.scope();
    lost = x * 2;
    const auto y = lost * 5;
    kept = scope.keep(y);
    EXPECT_THROW(y.value(), TapeError) << "the old handle ends at keep";
  }
  EXPECT_EQ(array(kept), (Array{10, 20}));
  EXPECT_EQ(array(kept + x), (Array{11, 22}));
  EXPECT_THROW(lost.value(), TapeError);
}

TEST(Scope, KeepsSeveralInAnyOrderAndAliasesToo) {
  Tape<double> tape;
  const auto x = tape.input(Array{{1, 2}, {3, 4}});
  auto scope = tape.scope();
  const auto a = x * 2, b = x * 3, flat = reshape(a, {4}), c = x * 5;
  const auto [kept_c, kept_flat, kept_a, kept_b, kept_again] = scope.keep(c, flat, a, b, c);
  EXPECT_EQ(array(kept_a), (Array{{2, 4}, {6, 8}}));
  EXPECT_EQ(array(kept_b), (Array{{3, 6}, {9, 12}}));
  EXPECT_EQ(array(kept_c), (Array{{5, 10}, {15, 20}}));
  EXPECT_EQ(array(kept_flat), (Array{2, 4, 6, 8}));
  EXPECT_EQ(array(kept_again), array(kept_c));
  EXPECT_EQ(tape.size(), 6u);
}

TEST(Scope, KeepsWhatWasKeptBefore) {
  Tape<double> tape;
  const auto x = tape.input(1.0);
  auto scope = tape.scope();
  const auto first = scope.keep(x * 2);
  const auto second = scope.keep(first * 3);
  EXPECT_EQ(first.item(), 2);
  EXPECT_EQ(second.item(), 6);
  EXPECT_EQ(scope.keep(first).item(), 2);
}

TEST(Scope, KeepsAValueFromBeforeAndLeavesItAlone) {
  Tape<double> tape;
  const auto x = tape.input(4.0);
  auto scope = tape.scope();
  const auto kept = scope.keep(x);
  EXPECT_EQ(kept.item(), 4);
  EXPECT_EQ(x.item(), 4);
}

TEST(Scope, KeepsLargeValuesOverMemoryThatGrows) {
  Tape<double> tape;
  const Array x = random_array<double>({300, 300}, 1);
  auto scope = tape.scope();
  const auto a = tape.input(x) * 2, b = a * 3, c = b * 4;
  const Array expected_a = array(a), expected_c = array(c);
  const auto [kept_c, kept_a] = scope.keep(c, a);
  EXPECT_EQ(array(kept_a), expected_a);
  EXPECT_EQ(array(kept_c), expected_c);
}

TEST(Scope, RefusesToKeepWhatRequiresAGradient) {
  Tape<double> tape;
  const auto x = tape.input(1.0, true);
  auto scope = tape.scope();
  const auto y = x * 2;
  expect_message<TapeError>([&] { scope.keep(y); }, {"[scope.keep]", "multiply", "no_grad"});
  EXPECT_EQ(y.item(), 2) << "a refused keep releases nothing";
  const auto guard = tape.no_grad();
  EXPECT_EQ(scope.keep(x * 3).item(), 3);
}

TEST(Scope, RefusesToKeepStaleAndForeignValues) {
  Tape<double> tape, other;
  const auto foreign = other.input(1.0);
  const auto stale = tape.input(1.0);
  tape.clear();
  auto scope = tape.scope();
  expect_message<TapeError>([&] { scope.keep(stale); }, {"[scope.keep]"});
  expect_message<TapeError>([&] { scope.keep(foreign); }, {"[scope.keep]", "another tape"});
  expect_message<TapeError>([&] { scope.keep(Var<double>()); }, {"[scope.keep]"});
}

TEST(Scope, MayBeNested) {
  Tape<double> tape;
  const auto x = tape.input(1.0);
  Var<double> outer_kept, inner_kept;
  {
    auto outer = tape.scope();
    const auto a = x * 2;
    {
      auto inner = tape.scope();
      inner_kept = inner.keep(a * 3);
    }
    EXPECT_EQ(inner_kept.item(), 6);
    outer_kept = outer.keep(inner_kept + a);
    EXPECT_THROW(inner_kept.value(), TapeError);
  }
  EXPECT_EQ(outer_kept.item(), 8);
  EXPECT_EQ(tape.size(), 2u);
}

TEST(Scope, OnlyTheInnermostMayKeep) {
  Tape<double> tape;
  const auto x = tape.input(1.0);
  auto outer = tape.scope();
  const auto a = x * 2;
  {
    auto inner = tape.scope();
    const auto b = a * 3;
    expect_message<TapeError>([&] { outer.keep(b); }, {"[scope.keep]", "innermost"});
    EXPECT_EQ(inner.keep(b).item(), 6);
  }
  EXPECT_EQ(outer.keep(a).item(), 2);
}

TEST(Scope, ClearInsideEndsItEarly) {
  Tape<double> tape;
  for (int i = 0; i < 10; ++i) tape.input(1.0);
  Var<double> after;
  {
    auto scope = tape.scope();
    tape.clear();
    after = tape.input(7.0);
    expect_message<TapeError>([&] { scope.keep(after); }, {"[scope.keep]", "clear()"});
  }
  EXPECT_EQ(after.item(), 7) << "what came after clear() is not the scope's to release";
  EXPECT_EQ(tape.size(), 1u);
}

TEST(Scope, AnExceptionEndsItProperly) {
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2}, true);
  const std::size_t size = tape.size();
  try {
    const auto scope = tape.scope();
    const auto y = x * x;
    static_cast<void>(y + tape.input(Array{1, 2, 3}));
    FAIL() << "shapes that do not broadcast were accepted";
  } catch (const ShapeError&) {
  }
  EXPECT_EQ(tape.size(), size);
  tape.backward(sum(x * x));
  EXPECT_EQ(gradient(x), (Array{2, 4}));
}

TEST(Scope, ForgetsAnOpThatWasNeverClosedInside) {
  Tape<double> tape;
  const auto x = tape.input(1.0, true);
  {
    const auto scope = tape.scope();
    tape.output("unclosed", {}, x);
  }
  tape.backward(x * 2);
  EXPECT_EQ(x.grad()(), 2);
}

TEST(Scope, ABackwardInsideReachesInputsAndParametersOutside) {
  Parameter<double> w({2});
  w.write() = Array{3, 4};
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2}, true);
  for (int i = 1; i <= 3; ++i) {
    const auto scope = tape.scope();
    tape.backward(sum(x * w));
    EXPECT_EQ(gradient(x), Array(i * Array{3, 4}));
    EXPECT_EQ(Array(w.grad()), Array(i * Array{1, 2}));
  }
}

TEST(Scope, ReleasesMasksAndTokens) {
  Tape<double> tape;
  const auto x = tape.input(random_array<double>({1, 2, 4}, 1));
  Mask mask;
  Integers tokens;
  {
    const auto scope = tape.scope();
    mask = tape.mask(xt::xarray<bool>{{true, false}});
    tokens = tape.integers(xt::xarray<int>{0, 1});
  }
  EXPECT_THROW(attention(x, x, x, 2, {.allow_keys = mask}), TapeError);
  EXPECT_THROW(embedding(reshape(x, {2, 4}), tokens), TapeError);
}

TEST(Scope, AThousandOfThemUseTheMemoryOfOne) {
  Tape<double> tape;
  Parameter<double> w({50, 50});
  const auto x = tape.input(random_array<double>({50, 50}, 1));
  const auto round = [&] {
    auto scope = tape.scope();
    Var<double> y = x;
    for (int i = 0; i < 20; ++i) y = matmul(y, w);
    tape.backward(sum(y));
  };
  round();
  const auto first = tape.memory();
  for (int i = 0; i < 1000; ++i) round();
  const auto last = tape.memory();
  EXPECT_EQ(last.reserved, first.reserved);
  EXPECT_EQ(last.values.now, first.values.now);
  EXPECT_EQ(last.values.peak, first.values.peak);
  EXPECT_EQ(last.gradients.now, first.gradients.now);
}

TEST(Scope, AGenerationLoopKeepsOneValueOfEachStep) {
  Tape<double> tape;
  Var<double> state = tape.input(random_array<double>({50, 50}, 1));
  const std::size_t size = tape.size();
  for (int i = 0; i < 100; ++i) {
    auto scope = tape.scope();
    state = scope.keep(softmax(state * 2 + 1));
  }
  EXPECT_EQ(tape.size(), size + 100);
  EXPECT_EQ(tape.memory().values.now, 101 * align_up(50 * 50 * sizeof(double)));
}

}  // namespace
}  // namespace xtape::tape_scope_test
