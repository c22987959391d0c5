// Sums over paths, tied parameters, repeated indices, depth and holes in the record (cases O19 to O21, O23 and O24).

#include <pthread.h>

#include <xtensor/xview.hpp>

#include "behaviour.hpp"
#include "files.hpp"

namespace xtape::behaviour_engine_test {
namespace {

/// x^2 with a backward that overwrites the gradient, as the faulty engines did.
template <class T>
Var<T> overwriting_square(Var<T> x) {
  Var<T> y = x.tape().output("overwriting_square", x.shape(), x);
  set_each(y, x, [](T v) { return v * v; });
  x.tape().on_backward(y, [x, y] {
    std::fill_n(x.grad().data(), x.size(), T(0));
    add_slope(x, y, [](T v) { return 2 * v; });
  });
  return y;
}

TEST(Behaviour, O19_ANonLeafUsedOnSeveralPaths) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    const Var<T> x = tape.input(T(1), true), a = tape.input(T(1), true);
    const Var<T> u = x * a, v = x * x;
    const Var<T> f = x * u + v * a + x * u;
    tape.backward(f);
    EXPECT_EQ(f.item(), T(3));
    EXPECT_EQ(x.grad()(), T(6));
    EXPECT_EQ(a.grad()(), T(3));
  });
}

TEST(Behaviour, O19_AnEngineThatOverwritesWouldBeNoticed) {
  Tape<double> tape;
  const Var<double> x = tape.input(1.0, true);
  tape.backward(x + overwriting_square(x) + x);
  EXPECT_NE(x.grad()(), 4.0);
}

TEST(Behaviour, O19_OneOperandOnBothSides) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    const Var<T> x = tape.input(xt::xarray<T>{2, -3}, true);
    tape.backward(sum(x + x));
    EXPECT_EQ(gradient(x), (xt::xarray<T>{2, 2}));
    tape.backward(sum(x * x));
    EXPECT_EQ(gradient(x), (xt::xarray<T>{6, -4}));  // added to the gradient from before
    tape.backward(sum(x - x));
    tape.backward(sum(x / x));
    EXPECT_TRUE(near(gradient(x), xt::xarray<T>{6, -4}, tolerance::two_paths<T>));
  });
}

TEST(Behaviour, O19_OneTensorAsBothOperandsOfMatmul) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const xt::xarray<T> values = random_array<T>({5, 5}, 1), dy = random_array<T>({5, 5}, 2);
    Tape<T> tape;
    const Var<T> x = tape.input(values, true), a = tape.input(values, true), b = tape.input(values, true);
    tape.backward(matmul(x, x), dy);
    tape.backward(matmul(a, b), dy);
    const xt::xarray<T> both = a.grad() + b.grad();
    EXPECT_TRUE(near(gradient(x), both, tolerance::two_paths<T>));
  });
}

TEST(Behaviour, O19_OneTensorAsQueryKeyAndValue) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const xt::xarray<T> values = random_array<T>({2, 5, 6}, 3), dy = random_array<T>({2, 5, 6}, 4);
    Tape<T> tape;
    const Var<T> x = tape.input(values, true);
    const Var<T> q = tape.input(values, true), k = tape.input(values, true), v = tape.input(values, true);
    tape.backward(attention(x, x, x, 2, {.causal = true}), dy);
    tape.backward(attention(q, k, v, 2, {.causal = true}), dy);
    const xt::xarray<T> all = q.grad() + k.grad() + v.grad();
    EXPECT_TRUE(near(gradient(x), all, tolerance::two_paths<T>));
  });
}

/// One table that is read by number and multiplied with, once as `table`, once as `head`.
template <class T>
struct TiedModel {
  Parameter<T> table = parameter_of(column<T>({1, 2}), Role::embedding);
  Parameter<T> head = table.share();

  /// 1 * logit 0 + 10 * logit 1 for token 1.
  Var<T> operator()(Tape<T>& tape) {
    const Var<T> hidden = embedding(tape.var(table), xt::xarray<int>{1});
    return sum(linear(hidden, head) * tape.input(xt::xarray<T>{1, 10}));
  }
  void visit(auto&& f) { f("table", table), f("head", head); }
};

TEST(Behaviour, O20_TiedParametersAddBothContributions) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    TiedModel<T> model;
    Tape<T> tape;
    tape.backward(model(tape));
    EXPECT_EQ(xt::xarray<T>(model.table.grad()), column<T>({2, 41}));
    EXPECT_EQ(xt::xarray<T>(model.head.grad()), column<T>({2, 41}));

    TiedModel<T> untied;  // each place alone, so the sum above is not a coincidence
    untied.head = parameter_of(column<T>({1, 2}));
    tape.backward(untied(tape));
    EXPECT_EQ(xt::xarray<T>(untied.head.grad()), column<T>({2, 20}));
    EXPECT_EQ(xt::xarray<T>(untied.table.grad()), column<T>({0, 21}));
  });
}

TEST(Behaviour, O20_TiedParametersAreOneForListsOptimizersAndFiles) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    TiedModel<T> model;
    auto list = parameters<T>(model);
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0].name, "table");
    EXPECT_EQ(count(list), 2U);
    EXPECT_NE(describe(model).find("total"), std::string::npos);
    EXPECT_EQ(describe(model).find("head"), std::string::npos);

    AdamW<T> optimizer(list, {.learning_rate = 0.1, .weight_decay = 0});
    EXPECT_EQ(optimizer.state().size(), 3U);  // one pair of moments and one count
    Tape<T> tape;
    tape.backward(model(tape));
    optimizer.step();  // the first step of AdamW moves by the learning rate: twice as far would be two updates
    EXPECT_TRUE(near(values_of(model.head), column<T>({T(0.9), T(1.9)}), tolerance::behaviour<T>));

    const TemporaryFolder folder;
    const auto path = folder / "tied.safetensors";
    save_safetensors(path, list);
    const xt::xarray<T> saved = values_of(model.table);
    fill(model.table, T(7));
    load_safetensors(path, list);
    EXPECT_TRUE(model.head.is(model.table));
    EXPECT_EQ(values_of(model.head), saved);
  });
}

TEST(Behaviour, O21_RepeatedIndicesAddUp) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    const Var<T> x = tape.input(column<T>({T(.1), 5, 6}), true);
    tape.backward(embedding(x, xt::xarray<int>{0, 0}), column<T>({T(.2), T(.3)}));
    EXPECT_TRUE(near(gradient(x), column<T>({T(.5), 0, 0}), tolerance::behaviour<T>));
    EXPECT_EQ(x.grad()(1, 0), T(0));
    EXPECT_EQ(x.grad()(2, 0), T(0));
    const Var<T> flat = tape.input(xt::xarray<T>{T(.1), 5}, true), picked = tape.input(xt::xarray<T>{T(.1), 5}, true);
    tape.backward(index_select(flat, 0, xt::xarray<int>{0, 0}), xt::xarray<T>{T(.2), T(.3)});
    EXPECT_TRUE(near(gradient(flat), xt::xarray<T>{T(.5), 0}, tolerance::behaviour<T>));
    tape.backward(gather(picked, 0, xt::xarray<int>{0, 0}), xt::xarray<T>{T(.2), T(.3)});
    EXPECT_TRUE(near(gradient(picked), xt::xarray<T>{T(.5), 0}, tolerance::behaviour<T>));
  });
}

TEST(Behaviour, O21_ManyRepeatedIndicesInEveryOrder) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    constexpr std::size_t rows = 7, width = 3, tokens = 4000;
    Rng rng(5);
    xt::xarray<std::int64_t> indices = zeros_of<std::int64_t>({4, tokens / 4});
    for (auto& index : indices) index = static_cast<std::int64_t>(rng.below(rows - 1));  // the last row is never read
    const xt::xarray<T> dy = random_array<T>({4, tokens / 4, width}, 6);
    xt::xarray<double> expected = zeros_of<double>({rows, width});
    for (std::size_t i = 0; i < tokens; ++i)
      for (std::size_t j = 0; j < width; ++j)
        expected(static_cast<std::size_t>(indices.flat(i)), j) += static_cast<double>(dy.flat(i * width + j));
    Tape<T> tape;
    const Var<T> table = tape.input(random_array<T>({rows, width}, 7), true);
    tape.backward(embedding(table, indices), dy);
    EXPECT_TRUE(near(gradient(table), expected, tolerance::behaviour<T>));
    for (std::size_t j = 0; j < width; ++j) EXPECT_EQ(table.grad()(rows - 1, j), T(0));
    const Var<T> selected = tape.input(array(table), true);
    xt::xarray<std::int64_t> in_line = indices;
    in_line.reshape({tokens});
    xt::xarray<T> dy_in_line = dy;
    dy_in_line.reshape({tokens, width});
    tape.backward(index_select(selected, 0, in_line), dy_in_line);
    EXPECT_TRUE(near(gradient(selected), expected, tolerance::behaviour<T>));
  });
}

/// Runs f on a thread whose stack has 256 KiB.
template <class F>
void on_a_small_stack(F f) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  pthread_t thread;
  const auto run = [](void* body) -> void* { return (*static_cast<F*>(body))(), nullptr; };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &f), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

template <class T>
Var<T> deep_chain(Var<T> x) {
  Var<T> y = x;
  for (int i = 0; i < 200000; ++i) y = y + y * 1e-6;
  return y;
}

TEST(Behaviour, O23_VeryDeepGraphs) {
  double slope = 0;
  on_a_small_stack([&] {
    Tape<double> tape;
    const Var<double> x = tape.input(1.0, true);
    tape.backward(deep_chain(x));
    slope = x.grad()();
    tape.clear();
  });
  EXPECT_NEAR(slope, 1.2214026360, tolerance::behaviour_double);
}

TEST(Behaviour, O23_VeryDeepGraphsDroppedWithoutBackward) {
  double cleared = 0;
  float dropped = 0;
  on_a_small_stack([&] {
    Tape<double> tape;
    cleared = deep_chain(tape.input(1.0, true)).item();
    tape.clear();
    Tape<float> another;  // dropped by its destructor
    dropped = deep_chain(another.input(1.0F, true)).item();
  });
  EXPECT_NEAR(cleared, 1.2214026360, tolerance::behaviour_double);
  EXPECT_GT(dropped, 1.2F);
}

/// An op whose author forgot on_backward.
template <class T>
Var<T> hole(Var<T> x) {
  Var<T> y = x.tape().output("hole", x.shape(), x);
  set_each(y, x, [](T v) { return 3 * v; });
  return y;
}

TEST(Behaviour, O24_AnOpWithoutBackwardIsRefused) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    const Var<T> x = tape.input(T(2), true);
    const Var<T> y = hole(x);
    expect_message<TapeError>([&] { exp(y); }, {"[hole]", "on_backward", "[exp]"});
    expect_message<TapeError>([&] { tape.backward(y); }, {"[hole]", "on_backward", "backward()"});
    expect_message<TapeError>([&] { reshape(y, {1}); }, {"[hole]", "on_backward"});
    tape.clear();
    tape.backward(exp(tape.input(T(2), true)));  // the tape is usable again
  });
}

TEST(Behaviour, O24_AnOpWithoutBackwardIsFineWhereNothingIsDifferentiated) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Tape<T> tape;
    EXPECT_EQ((hole(tape.input(T(2))) + T(1)).item(), T(7));
    const Var<T> x = tape.input(T(2), true);
    const auto guard = tape.no_grad();
    EXPECT_EQ((hole(x) + T(1)).item(), T(7));
  });
}

TEST(Behaviour, O24_EveryParameterOfTheModelTrains) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    for (const Norm norm : {Norm::pre, Norm::post}) {
      Rng rng(8);
      TransformerLm<T> model(
          {.vocabulary = 11, .length = 6, .width = 8, .heads = 2, .layers = 2, .block = {.norm = norm}}, rng);
      const xt::xarray<int> tokens = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 0, 1}};
      Tape<T> tape;
      tape.backward(cross_entropy(model(tape, tokens), xt::xarray<int>{{2, 3, 4, 5, 6, 7}, {8, 9, 10, 0, 1, 2}}));
      auto list = parameters<T>(model);
      EXPECT_GT(list.size(), 20U);
      for (auto& [name, parameter] : list) {
        EXPECT_TRUE(parameter.has_grad()) << name;
        EXPECT_TRUE(xt::any(xt::not_equal(parameter.grad(), T(0)))) << name;
      }
    }
  });
}

TEST(Behaviour, O24_LayerNormPassesTheGradientOn) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    const xt::xarray<T> spread = {1, 9, 2, 9, 4, 9};
    Tape<T> tape;
    const Var<T> contiguous = tape.input(xt::xarray<T>{1, 2, 4}, true);
    const Var<T> strided = tape.input(xt::view(spread, xt::range(0, 6, 2)), true);
    for (const Var<T> x : {contiguous, strided}) {
      const Var<T> y = layer_norm(x);
      tape.backward(slice(y, 0, 0, 1));
      const xt::xarray<T> right = {T(-1.0690415315), T(-.2672603829), T(1.3363019143)};
      const xt::xarray<T> slope = {T(.229082292), T(-.343620001), T(.114537710)};
      EXPECT_TRUE(near(array(y), right, tolerance::behaviour<T>));
      EXPECT_TRUE(near(gradient(x), slope, tolerance::behaviour<T>));
    }
  });
}

}  // namespace
}  // namespace xtape::behaviour_engine_test
