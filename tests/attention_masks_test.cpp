// What a query may look at: polarity, alignment, rows that see nothing, and hidden places that may hold anything.

#include <cmath>

#include "attention_paths.hpp"

namespace xtape::attention_masks_test {
namespace {

using Scalars = testing::Types<float, double>;

template <class T>
class AttentionMasks : public testing::Test {
 protected:
  Tape<T> tape;

  Var<T> zeros(std::size_t time) {
    return tape.input(time_column<T>(time, [](std::size_t) { return 0; }));
  }
  Mask keys(std::initializer_list<bool> allowed) { return tape.mask(row(allowed)); }
  static xt::xarray<bool> row(std::initializer_list<bool> allowed) {
    xt::xarray<bool> x = zeros_of<bool>({1, allowed.size()});
    std::copy(allowed.begin(), allowed.end(), x.begin());
    return x;
  }
  static void expect(Var<T> y, std::initializer_list<double> numbers) {
    EXPECT_TRUE(near(y.value(), time_column<T>(numbers), tolerance::behaviour<T>));
  }
};
TYPED_TEST_SUITE(AttentionMasks, Scalars);

// ---- which keys (scores are 0, so that every visible key has the same weight)

TYPED_TEST(AttentionMasks, TheLastQuerySitsOnTheLastKey) {
  using T = TypeParam;
  const Var<T> k = this->zeros(4), v = this->tape.input(time_column<T>({1, 2, 3, 4}));
  for (const Path path : cross_paths) {
    SCOPED_TRACE(to_string(path));
    this->expect(attention_by(path, this->zeros(2), k, v, 1, {.causal = true}), {2, 2.5});  // from the left: 1, 1.5
    this->expect(attention_by(path, this->zeros(1), k, v, 1, {.causal = true}), {2.5});     // from the left: 1
  }
}

TYPED_TEST(AttentionMasks, DecodingInPiecesEqualsTheWhole) {
  using T = TypeParam;
  const auto numbers = time_column<T>({1, 2, 3, 4, 5}), whole = time_column<T>({1, 1.5, 2, 2.5, 3});
  const std::vector<std::vector<std::size_t>> splits = {{5}, {1, 1, 1, 1, 1}, {2, 3}, {4, 1}};
  for (const Path path : cross_paths)
    for (const auto& pieces : splits) {
      std::size_t done = 0;
      for (const std::size_t n : pieces) {
        const Var<T> v = this->tape.input(times(numbers, 0, done + n));
        const Var<T> y = attention_by(path, this->zeros(n), this->zeros(done + n), v, 1, {.causal = true});
        EXPECT_TRUE(near(y.value(), times(whole, done, done + n), tolerance::behaviour<T>)) << to_string(path);
        done += n;
      }
    }
}

TYPED_TEST(AttentionMasks, QueriesMayStandAtPlacesOfTheirOwn) {
  using T = TypeParam;
  const std::size_t keys = 6;
  const xt::xarray<int> places = {{5, 0, 3}, {1, 1, 4}};
  xt::xarray<bool> pairs = zeros_of<bool>({2, 3, keys});
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t i = 0; i < 3; ++i)
      for (int j = std::max(0, places(b, i) - 2); j <= places(b, i); ++j)
        pairs(b, i, static_cast<std::size_t>(j)) = true;
  for (const Path path : cross_paths) {
    const auto run = [&](const Attend<T>& attend) {
      const Var<T> q = this->tape.input(random_array<T>({2, 3, 4}, 1), true);
      const Var<T> k = this->tape.input(random_array<T>({2, keys, 4}, 2), true);
      const Var<T> y = attention_by(path, q, k, k, 2, attend);
      this->tape.backward(y, random_array<T>({2, 3, 4}, 3));
      return std::array{array(y), gradient(q), gradient(k)};
    };
    const auto placed = run({.causal = true, .window = 3, .places = this->tape.integers(places)});
    const auto right = run({.allow = this->tape.mask(pairs)});
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(near(placed[i], right[i], tolerance::two_paths<T>)) << i;
  }
  const Var<T> q = this->zeros(3), k = this->zeros(6);
  for (const int outside : {-1, 6})
    expect_message<ShapeError>(
        [&] {
          attention(q, k, k, 1, {.places = this->tape.integers(xt::xarray<int>{{0, 5, outside}})});
        },
        {"[attention]", "places must be from 0", "keys 6", fmt::format("got {}", outside).c_str()});
  expect_message<ShapeError>(
      [&] {
        attention(q, k, k, 1, {.places = this->tape.integers(zeros_of<int>({1, 6}))});
      },
      {"places must be (batch 1, time 3)", "(1, 6)"});
}

TYPED_TEST(AttentionMasks, KeysBehindTheFirstOnesDoNotCount) {
  using T = TypeParam;
  const auto run = [&](Path path, bool cut, std::size_t kv_heads, T behind) {
    xt::xarray<T> keys = random_array<T>({2, 5, 2 * kv_heads}, 2);
    xt::view(keys, xt::all(), xt::range(3, 5)) = behind;
    const Var<T> q = this->tape.input(random_array<T>({2, 5, 4}, 1), true), k = this->tape.input(keys, true);
    const Var<T> seen = cut ? slice(k, 1, 0, 3) : k;
    const Var<T> y = attention_by(path, q, seen, seen, 2, {.causal = true, .keys = 3, .kv_heads = kv_heads});
    this->tape.backward(y, random_array<T>({2, 5, 4}, 3));
    return std::array{array(y), gradient(q), gradient(k)};
  };
  for (const std::size_t kv_heads : {1, 2}) {
    const auto right = run(Path::separate, true, kv_heads, T(1));
    for (const Path path : all_paths)
      for (const T behind : {T(1), std::numeric_limits<T>::quiet_NaN()}) {
        const auto results = run(path, false, kv_heads, behind);
        for (std::size_t i = 0; i < 3; ++i)
          EXPECT_TRUE(near(results[i], right[i], tolerance::two_paths<T>)) << to_string(path) << ", " << i;
      }
  }
  const Var<T> x = this->zeros(3);
  expect_message<ShapeError>([&] { attention(x, x, x, 1, {.keys = 4}); }, {"keys must be at most the 3", "got 4"});
}

TYPED_TEST(AttentionMasks, TrueMeansMayBeAttendedTo) {
  using T = TypeParam;
  const Var<T> q = this->zeros(3), v = this->tape.input(time_column<T>({1, 2, 4}));
  for (const Path path : all_paths) {
    SCOPED_TRACE(to_string(path));
    this->expect(attention_by(path, q, q, v, 1, {.allow_keys = this->keys({true, true, false})}), {1.5, 1.5, 1.5});
    this->expect(attention_by(path, q, q, v, 1, {.allow_keys = this->keys({false, false, true})}), {4, 4, 4});
  }
}

TYPED_TEST(AttentionMasks, LengthsHideWhatFollowsThem) {
  using T = TypeParam;
  xt::xarray<T> numbers = zeros_of<T>({3, 3, 1});
  xt::view(numbers, xt::all()) = time_column<T>({1, 2, 4});
  const Var<T> q = this->tape.input(zeros_of<T>({3, 3, 1})), v = this->tape.input(numbers);
  const xt::xarray<int> lengths = {0, 1, 3};
  const Attend<T> attend{.allow_keys = this->tape.lengths(lengths, 3)};
  const double mean_of_none = 0, mean_of_one = 1, mean_of_all = 7.0 / 3;
  for (const Path path : all_paths) {
    const xt::xarray<T> y = array(attention_by(path, q, q, v, 1, attend));
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(y(0, i, 0), mean_of_none) << to_string(path);
      EXPECT_EQ(y(1, i, 0), mean_of_one) << to_string(path);
      EXPECT_NEAR(y(2, i, 0), mean_of_all, tolerance::behaviour<T>) << to_string(path);
    }
  }
}

// ---- queries that see nothing

TYPED_TEST(AttentionMasks, AQueryThatSeesNothingGivesZeroAndFiniteGradients) {
  using T = TypeParam;
  for (const Path path : cross_paths) {
    SCOPED_TRACE(to_string(path));
    const Var<T> q = this->tape.input(time_column<T>({1, 0.5}), true),
                 k = this->tape.input(time_column<T>({0, 1, 2}), true),
                 v = this->tape.input(time_column<T>({1, 2, 4}), true);
    const Attend<T> attend{
        .allow_keys = this->keys({true, true, false}), .allow_queries = this->keys({false, true}), .scale = 1};
    const Var<T> y = attention_by(path, q, k, v, 1, attend);
    this->expect(y, {0, 1.6224593312});
    this->tape.backward(y, ones_of<T>({1, 2, 1}));
    const auto expect_gradient = [](Var<T> x, std::initializer_list<double> numbers) {
      EXPECT_TRUE(near(x.grad(), time_column<T>(numbers), tolerance::behaviour<T>));
    };
    expect_gradient(q, {0, 0.2350037122});
    expect_gradient(k, {-0.1175018561, 0.1175018561, 0});
    expect_gradient(v, {0.3775406688, 0.6224593312, 0});
    EXPECT_EQ(y.value()(0, 0, 0), T(0));
    EXPECT_EQ(q.grad()(0, 0, 0), T(0));
    EXPECT_EQ(k.grad()(0, 2, 0), T(0));
    EXPECT_EQ(v.grad()(0, 2, 0), T(0));
  }
}

TYPED_TEST(AttentionMasks, AQueryThatSeesNothingHasWeightsZeroAndLogSumExpMinusInfinity) {
  using T = TypeParam;
  const auto x = [&](std::uint64_t seed) { return this->tape.input(random_array<T>({1, 4, 6}, seed), true); };
  const Var<T> q = x(1), k = x(2), v = x(3);
  // Left padding under a causal mask: the first two queries see nothing.
  const Attend<T> attend{.causal = true, .allow_keys = this->keys({false, false, true, true})};
  const auto result = attention_with_weights(q, k, v, 2, attend);
  const xt::xarray<T> weights = array(result.weights), log_sum_exp = array(result.log_sum_exp);
  for (std::size_t h = 0; h < 2; ++h)
    for (std::size_t i = 0; i < 4; ++i) {
      const xt::xarray<T> row = xt::view(weights, 0, h, i);
      EXPECT_EQ(all_zero(row), i < 2);
      EXPECT_EQ(log_sum_exp(0, h, i) == -std::numeric_limits<T>::infinity(), i < 2);
    }
  EXPECT_TRUE(all_zero(times(array(result.output), 0, 2)));
  EXPECT_FALSE(all_zero(times(array(result.output), 2, 3)));

  // Gradients from above for all three outputs, also for the log-sum-exp that is infinite.
  const Var<T> loss = sum(result.output) + sum(result.weights * result.weights) + sum(result.log_sum_exp);
  this->tape.backward(loss);
  for (const Var<T>& input : {q, k, v}) {
    EXPECT_TRUE(all_finite(input.grad()));
    EXPECT_FALSE(all_zero(input.grad()));
  }
  EXPECT_TRUE(all_zero(times(gradient(q), 0, 2)));
  EXPECT_TRUE(all_zero(times(gradient(k), 0, 2)));
  EXPECT_TRUE(all_zero(times(gradient(v), 0, 2)));
}

TYPED_TEST(AttentionMasks, ManyQueriesBeforeTheFirstKeySeeNothing) {
  using T = TypeParam;
  constexpr std::size_t queries = 200, keys = 130, blind = queries - keys;
  const Var<T> q = this->tape.input(time_column<T>(queries, [](std::size_t) { return 0; }), true);
  const Var<T> k = this->zeros(keys);
  const Var<T> v = this->tape.input(time_column<T>(keys, [](std::size_t j) { return j; }), true);
  // Query blind + n sees the keys 0 to n; key j is one of n + 1 for every n >= j.
  const auto y_of = [](std::size_t i) { return i < blind ? 0 : static_cast<double>(i - blind) / 2; };
  const auto dv_of = [](std::size_t j) {
    double sum = 0;
    for (std::size_t n = j; n < keys; ++n) sum += 1.0 / static_cast<double>(n + 1);
    return sum;
  };
  for (const Path path : cross_paths) {
    const auto before = gradient(v);
    const Var<T> y = attention_by(path, q, k, v, 1, {.causal = true});
    this->tape.backward(y, ones_of<T>({1, 200, 1}));
    EXPECT_TRUE(near(y.value(), time_column<T>(queries, y_of), tolerance::behaviour<T>)) << to_string(path);
    const xt::xarray<T> dv = v.grad() - before;
    EXPECT_TRUE(near(dv, time_column<T>(keys, dv_of), tolerance::behaviour<T>)) << to_string(path);
    EXPECT_TRUE(all_finite(q.grad()));
    EXPECT_TRUE(all_zero(times(gradient(q), 0, blind)));
  }
}

TYPED_TEST(AttentionMasks, AQueryThatMayNotAskGivesZero) {
  using T = TypeParam;
  const Attend<T> attend{.allow_queries = this->keys({true, false, true})};
  for (const Path path : all_paths) {
    const auto x = [&](std::uint64_t seed) { return this->tape.input(random_array<T>({1, 3, 4}, seed), true); };
    const Var<T> q = x(1), k = x(2), v = x(3), y = attention_by(path, q, k, v, 2, attend),
                 free = attention_by(path, q, k, v, 2);
    this->tape.backward(y, random_array<T>({1, 3, 4}, 4));
    EXPECT_TRUE(all_zero(times(array(y), 1, 2))) << to_string(path);
    EXPECT_TRUE(all_zero(times(gradient(q), 1, 2))) << to_string(path);
    EXPECT_FALSE(all_zero(times(array(free), 1, 2))) << to_string(path);
    for (const std::size_t i : {0, 2}) {
      EXPECT_TRUE(near(times(array(y), i, i + 1), times(array(free), i, i + 1), tolerance::two_paths<T>))
          << to_string(path);
      EXPECT_FALSE(all_zero(times(gradient(q), i, i + 1))) << to_string(path);
    }
  }
}

// ---- hidden places may hold anything

/// Output and gradients of one attention.
template <class T>
struct Run {
  xt::xarray<T> y, dq, dk, dv;
};

/// q, k, v and dy (3, 5, 8) are random, except that `bad` stands where the rows of `hide` are true; `mask` makes what
/// may be seen.
template <class T>
struct Hidden {
  xt::xarray<bool> rows_of_k, rows_of_q;
  Attend<T> (*mask)(Tape<T>&);

  Run<T> run(Path path, T bad, bool masked = true) const {
    Tape<T> tape;
    const auto x = [&](std::uint64_t seed, const xt::xarray<bool>& rows) {
      xt::xarray<T> numbers = random_array<T>({3, 5, 8}, seed);
      for (std::size_t b = 0; b < 3; ++b)
        for (std::size_t t = 0; t < 5; ++t)
          if (rows(b, t)) xt::view(numbers, b, t) = bad;
      return numbers;
    };
    const Var<T> q = tape.input(x(1, rows_of_q), true), k = tape.input(x(2, rows_of_k), true),
                 v = tape.input(x(3, rows_of_k), true);
    const Var<T> y = attention_by(path, q, k, v, 2, masked ? mask(tape) : Attend<T>{});
    tape.backward(y, x(4, rows_of_q));
    return {array(y), gradient(q), gradient(k), gradient(v)};
  }
};

template <class T>
xt::xarray<T> rows_where(const xt::xarray<T>& x, const xt::xarray<bool>& rows) {
  xt::xarray<T> kept = x;
  for (std::size_t b = 0; b < 3; ++b)
    for (std::size_t t = 0; t < 5; ++t)
      if (!rows(b, t)) xt::view(kept, b, t) = T(0);
  return kept;
}

template <class T>
void expect_hidden(const Hidden<T>& hidden) {
  for (const Path path : all_paths)
    for (const T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(), T(1e30)}) {
      SCOPED_TRACE(testing::Message() << to_string(path) << ", " << bad);
      const Run<T> clean = hidden.run(path, T(1)), dirty = hidden.run(path, bad);
      EXPECT_TRUE(near(dirty.y, clean.y, tolerance::two_paths<T>));
      EXPECT_TRUE(near(dirty.dq, clean.dq, tolerance::two_paths<T>));
      EXPECT_TRUE(near(dirty.dk, clean.dk, tolerance::two_paths<T>));
      EXPECT_TRUE(near(dirty.dv, clean.dv, tolerance::two_paths<T>));
      EXPECT_TRUE(all_finite(dirty.y) && !all_zero(dirty.y));
      EXPECT_TRUE(all_zero(rows_where(dirty.dk, hidden.rows_of_k)) && !all_zero(dirty.dk));
      EXPECT_TRUE(all_zero(rows_where(dirty.dv, hidden.rows_of_k)) && !all_zero(dirty.dv));
      EXPECT_TRUE(all_zero(rows_where(dirty.dq, hidden.rows_of_q)) && !all_zero(dirty.dq));
      const Run<T> seen = hidden.run(path, bad, /*masked=*/false);
      EXPECT_FALSE(near(seen.y, clean.y, tolerance::two_paths<T>));  // in sight it would do harm
    }
}

const xt::xarray<bool> nowhere = zeros_of<bool>({3, 5});

TYPED_TEST(AttentionMasks, PaddedKeysMayHoldAnything) {
  using T = TypeParam;
  xt::xarray<bool> padding = nowhere;
  xt::view(padding, 0, xt::range(2, 5)) = true;
  xt::view(padding, 2) = true;
  expect_hidden<T>({padding, nowhere, [](Tape<T>& tape) {
                      const xt::xarray<int> lengths = {2, 5, 0};
                      return Attend<T>{.allow_keys = tape.lengths(lengths, 5)};
                    }});
}

TYPED_TEST(AttentionMasks, KeysAfterTheLastQueryOfACausalMaskMayHoldAnything) {
  using T = TypeParam;
  xt::xarray<bool> last = nowhere;
  xt::view(last, xt::all(), xt::range(3, 5)) = true;
  expect_hidden<T>({last, last, [](Tape<T>& tape) {
                      const xt::xarray<int> lengths = {3, 3, 3};
                      return Attend<T>{.causal = true, .allow_queries = tape.lengths(lengths, 5)};
                    }});
}

TYPED_TEST(AttentionMasks, KeysHiddenFromEveryQueryByPairsMayHoldAnything) {
  using T = TypeParam;
  xt::xarray<bool> second = nowhere;
  xt::view(second, xt::all(), 1) = true;
  expect_hidden<T>({second, nowhere, [](Tape<T>& tape) {
                      xt::xarray<bool> pairs = ones_of<bool>({5, 5});
                      xt::view(pairs, xt::all(), 1) = false;
                      return Attend<T>{.allow = tape.mask(pairs)};
                    }});
  expect_hidden<T>({second, nowhere, [](Tape<T>& tape) {
                      xt::xarray<T> bias = random_array<T>({1, 2, 5, 5}, 5);
                      xt::view(bias, xt::all(), xt::all(), xt::all(), 1) = -std::numeric_limits<T>::infinity();
                      return Attend<T>{.bias = tape.input(bias, true)};
                    }});
}

TYPED_TEST(AttentionMasks, KeysBehindEveryWindowMayHoldAnything) {
  using T = TypeParam;
  xt::xarray<bool> first = nowhere;
  xt::view(first, xt::all(), xt::range(0, 2)) = true;
  expect_hidden<T>({first, first, [](Tape<T>& tape) {
                      const xt::xarray<bool> late = {{false, false, false, true, true},
                                                     {false, false, false, true, true},
                                                     {false, false, false, true, true}};
                      return Attend<T>{.allow_queries = tape.mask(late), .window = 2};
                    }});
}

TYPED_TEST(AttentionMasks, TheBiasOfAHiddenPairMayHoldAnything) {
  using T = TypeParam;
  for (const Path path : all_paths) {
    const Var<T> x = this->tape.input(random_array<T>({2, 4, 6}, 1), true);
    const auto run = [&](T bad) {
      xt::xarray<T> numbers = random_array<T>({4, 4}, 2);
      for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t j = i + 1; j < 4; ++j) numbers(i, j) = bad;
      const Var<T> bias = this->tape.input(numbers, true);
      const Var<T> y = attention_by(path, x, x, x, 3, {.causal = true, .bias = bias});
      this->tape.backward(y, random_array<T>({2, 4, 6}, 3));
      return std::pair(array(y), gradient(bias));
    };
    const auto [y, db] = run(T(0));
    EXPECT_FALSE(all_zero(db));
    for (const T bad : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(), T(1e30)}) {
      const auto [other_y, other_db] = run(bad);
      EXPECT_TRUE(same_bits(other_y, y)) << to_string(path) << ", " << bad;
      EXPECT_TRUE(same_bits(other_db, db)) << to_string(path) << ", " << bad;
    }
  }
}

// The last query sees the bad key, and is bad itself; those before it must not learn of it.
TYPED_TEST(AttentionMasks, ACausalMaskHidesABadKeyFromTheQueriesBeforeIt) {
  using T = TypeParam;
  xt::xarray<bool> last = nowhere;
  xt::view(last, xt::all(), 4) = true;
  const Hidden<T> hidden{last, nowhere, [](Tape<T>&) { return Attend<T>{.causal = true}; }};
  for (const Path path : all_paths) {
    const Run<T> clean = hidden.run(path, T(1)), dirty = hidden.run(path, std::numeric_limits<T>::quiet_NaN());
    EXPECT_TRUE(near(times(dirty.y, 0, 4), times(clean.y, 0, 4), tolerance::two_paths<T>)) << to_string(path);
    EXPECT_TRUE(near(times(dirty.dq, 0, 4), times(clean.dq, 0, 4), tolerance::two_paths<T>)) << to_string(path);
    EXPECT_FALSE(all_finite(times(dirty.y, 4, 5))) << to_string(path);
  }
}

}  // namespace
}  // namespace xtape::attention_masks_test
