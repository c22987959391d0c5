// Decoding with a cache of keys and values equals the whole at once, however it is divided and padded (cases O13, O14).

#include "attention_paths.hpp"

namespace xtape::key_value_cache_test {
namespace {

using Scalars = testing::Types<float, double>;
constexpr AttentionKernel kernels_of_attention[] = {AttentionKernel::materialised, AttentionKernel::tiled};
using Tokens = xt::xarray<int>;
using Split = std::vector<std::size_t>;  // lengths of pieces, one after another

/// Every way to divide n tokens into pieces.
std::vector<Split> all_splits(std::size_t n) {
  std::vector<Split> splits;
  for (std::size_t cuts = 0; cuts < std::size_t{1} << (n - 1); ++cuts) {
    Split split = {1};
    for (std::size_t place = 0; place + 1 < n; ++place)
      if ((cuts >> place & 1u) != 0)
        split.push_back(1);
      else
        ++split.back();
    splits.push_back(split);
  }
  return splits;
}

/// Some places of one row of x (batch, time, ...).
template <class T>
xt::xarray<T> places_of(const xt::xarray<T>& x, std::size_t row, const std::vector<std::size_t>& places) {
  Shape shape(x.shape());
  const std::size_t time = shape[1], inner = x.size() / (shape[0] * time);
  shape[0] = 1, shape[1] = places.size();
  xt::xarray<T> chosen = zeros_of<T>(shape);
  for (std::size_t i = 0; i < places.size(); ++i)
    std::copy_n(x.data() + (row * time + places[i]) * inner, inner, chosen.data() + i * inner);
  return chosen;
}

struct Kind {
  bool rotary;
  std::size_t kv_heads;
  Norm norm = Norm::pre;
};
constexpr Kind kinds[] = {{true, 2}, {true, 4}, {false, 1}, {false, 4, Norm::post}};

template <class T>
TransformerLm<T> language_model(const Kind& kind, std::size_t length = 12) {
  Rng rng(3);
  TransformerBlockOptions block{.norm = kind.norm, .hidden = 16, .kv_heads = kind.kv_heads};
  if (kind.rotary) block.rope = RopeOptions{};
  return TransformerLm<T>({.vocabulary = 7, .length = length, .width = 16, .heads = 4, .block = block}, rng);
}

template <class T>
class Cache : public testing::Test {
 protected:
  Tape<T> tape;
  typename Tape<T>::NoGrad no_grad{tape};

  /// Logits of tokens (batch, time) that come in pieces.
  xt::xarray<T> decode(const TransformerLm<T>& model, ModelCache<T>& cache, const Tokens& tokens, const Split& split,
                       const xt::xarray<bool>* real = nullptr, const Attend<T>& attend = {}) {
    std::vector<Var<T>> pieces;
    std::size_t done = 0;
    for (const std::size_t n : split) {
      const Tokens piece = times(tokens, done, done + n);
      const Mask mask = real == nullptr ? Mask{} : tape.mask(times(*real, done, done + n));
      pieces.push_back(model(tape, piece, cache, mask, attend));
      done += n;
    }
    return array(concat(pieces, 1));
  }
  /// All that a cache's memory holds.
  xt::xarray<T> memory(const KeyValueCache<T>& cache) {
    return array(concat({cache.keys(tape), cache.values(tape)}, -1));
  }
};
TYPED_TEST_SUITE(Cache, Scalars);

const Tokens two_rows = {{4, 1, 5, 0, 2, 6}, {2, 3, 6, 1, 1, 0}};

// ---- equal to the whole

TYPED_TEST(Cache, O14_RunningMeansInPieces) {
  using T = TypeParam;
  const auto numbers = time_column<T>({1, 2, 3, 4, 5}), whole = time_column<T>({1, 1.5, 2, 2.5, 3});
  const auto zeros = time_column<T>({0, 0, 0, 0, 0});
  for (const AttentionKernel kernel : kernels_of_attention)
    for (const Split& split : all_splits(5)) {
      KeyValueCache<T> cache(1, 5, 1, 1);
      std::size_t done = 0;
      for (const std::size_t n : split) {
        const Var<T> x = this->tape.input(times(zeros, done, done + n));
        const Var<T> v = this->tape.input(times(numbers, done, done + n));
        const Var<T> y = cached_attention(x, x, v, 1, cache, {}, {.kernel = kernel});
        EXPECT_TRUE(near(y.value(), times(whole, done, done + n), tolerance::behaviour<T>)) << "from " << done;
        done += n;
        EXPECT_EQ(cache.length(), done);
      }
    }
}

TYPED_TEST(Cache, O14_AModelAtEverySplitGivesWhatItGivesAtOnce) {
  using T = TypeParam;
  for (const Kind& kind : kinds)
    for (const AttentionKernel kernel : kernels_of_attention) {
      const auto model = language_model<T>(kind);
      const Attend<T> attend{.window = 4, .kernel = kernel};
      for (const bool windowed : {false, true}) {
        const Attend<T> options = windowed ? attend : Attend<T>{.kernel = kernel};
        const xt::xarray<T> whole = array(model(this->tape, two_rows, options));
        for (const Split& split : all_splits(6)) {
          auto cache = model.cache(2, 7);
          const auto y = this->decode(model, cache, two_rows, split, nullptr, options);
          EXPECT_TRUE(near(y, whole, tolerance::decoding<T>)) << "first piece " << split[0];
          EXPECT_EQ(cache.lengths(), (std::vector<std::size_t>{6, 6}));
          this->tape.clear();
        }
      }
    }
}

TYPED_TEST(Cache, O13_O14_PaddingOnAnySideCountsForNothingAtEverySplit) {
  using T = TypeParam;
  const xt::xarray<bool> left = {{false, false, false, true, true, true}, {true, true, true, true, true, true}};
  const xt::xarray<bool> right = {{true, true, true, true, true, true}, {true, true, false, false, false, false}};
  const xt::xarray<bool> anywhere = {{false, true, false, true, true, false}, {false, false, true, false, true, true}};
  for (const Kind& kind : kinds)
    for (const AttentionKernel kernel : kernels_of_attention) {
      const auto model = language_model<T>(kind);
      const Attend<T> options{.window = kind.norm == Norm::post ? std::optional<std::size_t>(2) : std::nullopt,
                              .kernel = kernel};
      for (const xt::xarray<bool>& real : {left, right, anywhere})
        for (const Split& split : all_splits(6)) {
          auto cache = model.cache(2, 6);
          const auto y = this->decode(model, cache, two_rows, split, &real, options);
          EXPECT_TRUE(all_finite(y));
          for (std::size_t row = 0; row < 2; ++row) {
            std::vector<std::size_t> places;
            for (std::size_t t = 0; t < 6; ++t)
              if (real(row, t)) places.push_back(t);
            const Tokens alone = places_of(two_rows, row, places);
            const xt::xarray<T> mine = places_of(y, row, places);
            EXPECT_TRUE(near(mine, array(model(this->tape, alone, options)), tolerance::decoding<T>))
                << "row " << row << ", first piece " << split[0];
            EXPECT_EQ(cache.lengths()[row], places.size());
          }
          this->tape.clear();
        }
    }
}

TYPED_TEST(Cache, PaddingAsksNothing) {
  using T = TypeParam;
  KeyValueCache<T> cache(2, 3, 4, 4);
  const Var<T> x = this->tape.input(random_array<T>({2, 2, 4}, 1));
  const Mask real = this->tape.mask(xt::xarray<bool>{{false, true}, {false, false}});
  for (int call = 0; call < 2; ++call) {
    const xt::xarray<T> y = array(cached_attention(x, x, x, 2, cache, real));
    EXPECT_TRUE(all_zero(times(y, 0, 1)));
    EXPECT_TRUE(all_zero(places_of(y, 1, {0, 1})));
    EXPECT_FALSE(all_zero(y));
  }
  EXPECT_EQ(cache.lengths(), (std::vector<std::size_t>{2, 0}));
  const Mask none = this->tape.mask(zeros_of<bool>({2, 2}));
  cache.reset();
  EXPECT_TRUE(all_zero(array(cached_attention(x, x, x, 2, cache, none))));  // nothing but padding so far
}

TYPED_TEST(Cache, LongerThanATile) {
  using T = TypeParam;
  const auto model = language_model<T>({true, 2});
  Rng rng(5);
  Tokens tokens = zeros_of<int>({2, 300});
  for (auto& token : tokens) token = static_cast<int>(rng.below(7));
  const xt::xarray<T> whole = array(model(this->tape, tokens));
  for (const Split& split : {Split{300}, Split{150, 149, 1}, Split{1, 140, 1, 1, 157}}) {
    auto cache = model.cache(2, 400);
    EXPECT_TRUE(near(this->decode(model, cache, tokens, split), whole, tolerance::decoding<T>));
  }
}

TYPED_TEST(Cache, TheSameSplitTwiceGivesTheSameBitsWhateverWasBefore) {
  using T = TypeParam;
  const auto model = language_model<T>({true, 2});
  const xt::xarray<bool> real = {{false, false, false, true, true, true}, {true, true, true, true, true, true}};
  auto used = model.cache(2, 6);
  for (auto& layer : used.layers) {  // longer rows, and numbers that spoil what they touch
    const xt::xarray<T> bad(std::vector<std::size_t>{2, 6, 8}, std::numeric_limits<T>::quiet_NaN());
    layer.append(this->tape.input(bad), this->tape.input(bad));
  }
  used.reset();
  EXPECT_EQ(used.length(), 0u);
  EXPECT_TRUE(all_zero(this->memory(used.layers[1])));
  auto fresh = model.cache(2, 6);
  const auto first = this->decode(model, fresh, two_rows, {4, 1, 1}, &real);
  const auto second = this->decode(model, used, two_rows, {4, 1, 1}, &real);
  EXPECT_TRUE(same_bits(first, second));
  EXPECT_TRUE(same_bits(this->memory(fresh.layers[1]), this->memory(used.layers[1])));
}

// ---- back to an earlier length

TYPED_TEST(Cache, O14_TruncateGoesBackToALength) {
  using T = TypeParam;
  const auto model = language_model<T>({true, 2});
  const Tokens other = {{4, 1, 6, 3, 3, 3}, {2, 3, 0, 5, 4, 4}};
  const xt::xarray<T> whole = array(model(this->tape, other));
  auto cache = model.cache(2, 6);
  this->decode(model, cache, two_rows, {6});
  cache.truncate(2);
  EXPECT_EQ(cache.lengths(), (std::vector<std::size_t>{2, 2}));
  const Tokens rest = times(other, 2, 6);
  const auto y = this->decode(model, cache, rest, {3, 1});
  EXPECT_TRUE(near(y, times(whole, 2, 6), tolerance::decoding<T>));
  cache.truncate(std::vector<std::size_t>{3, 5});
  EXPECT_EQ(cache.lengths(), (std::vector<std::size_t>{3, 5}));
  cache.truncate(4);  // the shorter row stays
  EXPECT_EQ(cache.lengths(), (std::vector<std::size_t>{3, 4}));
  expect_message<ShapeError>([&] { cache.truncate(5); }, {"[KeyValueCache]", "at most the 4 tokens held", "got 5"});
  expect_message<ShapeError>([&] { cache.truncate(std::vector<std::size_t>{3, 5}); }, {"row 1", "got 5"});
  expect_message<ShapeError>([&] { cache.truncate(std::vector<std::size_t>{3}); }, {"2 lengths", "got 1"});
  EXPECT_EQ(cache.lengths(), (std::vector<std::size_t>{3, 4}));
}

// ---- what does not fit is refused, and changes nothing

TYPED_TEST(Cache, O14_AnOverflowThrowsAndChangesNothing) {
  using T = TypeParam;
  for (const Kind& kind : kinds) {
    const auto model = language_model<T>(kind);
    auto cache = model.cache(2, 5);
    const Tokens four = times(two_rows, 0, 4), two = times(two_rows, 4, 6);
    const xt::xarray<bool> first_row_alone = {{true, true}, {false, false}};
    model(this->tape, four, cache,
          this->tape.mask(xt::xarray<bool>{{true, true, true, true}, {true, true, true, false}}));
    const auto before = this->memory(cache.layers[0]);
    expect_message<ShapeError>([&] { model(this->tape, two, cache); },
                               {"[KeyValueCache]", "row 0 holds 4 of 5 tokens", "no room for 2 more"});
    EXPECT_THROW(model(this->tape, two, cache, this->tape.mask(first_row_alone)), ShapeError);
    EXPECT_EQ(cache.lengths(), (std::vector<std::size_t>{4, 3}));
    EXPECT_TRUE(same_bits(this->memory(cache.layers[0]), before));
    model(this->tape, two, cache, this->tape.mask(xt::xarray<bool>{{true, false}, {true, true}}));
    EXPECT_EQ(cache.lengths(), (std::vector<std::size_t>{5, 5}));
    EXPECT_THROW(model(this->tape, xt::view(two, xt::all(), xt::range(0, 1)), cache), ShapeError);
  }
}

TYPED_TEST(Cache, MismatchesThrowAndChangeNothing) {
  using T = TypeParam;
  Tape<T>& tape = this->tape;
  const auto zeros = [&](const Shape& shape) {
    return tape.input(xt::xarray<T>(std::vector<std::size_t>(shape.begin(), shape.end()), T(0)));
  };
  KeyValueCache<T> cache(2, 4, 6, 3);
  cache.append(tape.input(random_array<T>({2, 2, 6}, 1)), tape.input(random_array<T>({2, 2, 3}, 2)));
  const auto before = this->memory(cache);
  const auto refused = [&](Var<T> k, Var<T> v, const Mask& real, std::initializer_list<const char*> parts) {
    expect_message<ShapeError>([&] { cache.append(k, v, real); }, parts);
  };
  refused(zeros({1, 1, 6}), zeros({1, 1, 3}), {}, {"[KeyValueCache]", "keys must be (batch 2, time, 6)", "(1, 1, 6)"});
  refused(zeros({2, 1, 3}), zeros({2, 1, 3}), {}, {"keys must be", "(2, 1, 3)"});
  refused(zeros({2, 6}), zeros({2, 1, 3}), {}, {"keys must be", "(2, 6)"});
  refused(zeros({2, 1, 6}), zeros({2, 1, 6}), {}, {"values must be (batch 2, time, 3)", "(2, 1, 6)"});
  refused(zeros({2, 1, 6}), zeros({2, 2, 3}), {}, {"as many", "(2, 1, 6) and (2, 2, 3)"});
  refused(zeros({2, 1, 6}), zeros({2, 1, 3}), tape.mask(ones_of<bool>({2, 2})), {"mask of tokens must be (2, 1)"});
  refused(zeros({2, 3, 6}), zeros({2, 3, 3}), {}, {"row 0 holds 2 of 4 tokens", "no room for 3 more"});
  Tape<T> other;
  const auto no_grad = other.no_grad();
  const Var<T> k = zeros({2, 1, 6}), v = zeros({2, 1, 3});
  EXPECT_THROW(cache.append(k, other.input(zeros_of<T>({2, 1, 3}))), TapeError);
  EXPECT_THROW(cache.append(k, v, other.mask(ones_of<bool>({2, 1}))), TapeError);
  const auto attend = [&](Var<T> q, const Attend<T>& options, const Mask& real = {}) {
    return cached_attention(q, k, v, 1, cache, real, options);
  };
  EXPECT_THROW(attend(zeros({2, 2, 6}), {}), ShapeError);
  EXPECT_THROW(attend(zeros({2, 1, 5}), {}), ShapeError);
  EXPECT_THROW(attend(zeros({2, 1, 6}), {.bias = zeros({1, 4})}), ShapeError);  // three keys are held by then
  EXPECT_THROW(attend(zeros({2, 1, 6}), {.keys = 3}), Error);
  EXPECT_THROW(attend(zeros({2, 1, 6}), {.places = tape.integers(zeros_of<int>({2, 1}))}), Error);
  const Mask all = tape.mask(ones_of<bool>({2, 1}));
  EXPECT_THROW(attend(zeros({2, 1, 6}), {.allow_queries = all}, all), Error);
  EXPECT_EQ(cache.lengths(), (std::vector<std::size_t>{2, 2}));
  EXPECT_TRUE(same_bits(this->memory(cache), before));
  EXPECT_EQ(attend(zeros({2, 1, 6}), {.bias = zeros({1, 3})}).shape(), (Shape{2, 1, 3}));  // and this fits
  EXPECT_THROW(KeyValueCache<T>(2, 0, 6, 3), ShapeError);
  EXPECT_THROW(KeyValueCache<T>(2, std::size_t{1} << 60, 6, 3), ShapeError);
}

TYPED_TEST(Cache, AModelThatThrowsInALaterLayerLeavesAllLayersAsTheyWere) {
  using T = TypeParam;
  const auto model = language_model<T>({true, 2});
  auto cache = model.cache(2, 6);
  const Tokens two = times(two_rows, 0, 2);
  model(this->tape, two, cache);
  const auto narrow = cache.layers[1].capacity();
  cache.layers[1] = KeyValueCache<T>(2, narrow, 4, 4);  // the widths of another model
  const xt::xarray<T> four = zeros_of<T>({2, 2, 4});
  cache.layers[1].append(this->tape.input(four), this->tape.input(four));
  expect_message<ShapeError>([&] { model(this->tape, two, cache); },
                             {"blocks.1.self_attn: [KeyValueCache] keys must be"});
  EXPECT_EQ(cache.layers[0].lengths(), (std::vector<std::size_t>{2, 2}));
  cache.layers[1].truncate(1);
  expect_message<Error>([&] { model(this->tape, two, cache); }, {"[ModelCache]", "the same tokens", "2 and 1"});
  cache.layers.pop_back();
  expect_message<ShapeError>([&] { model(this->tape, two, cache); }, {"[TransformerLm]", "2 layers", "got one of 1"});
  auto whole = model.cache(2, 6);
  expect_message<ShapeError>([&] { model(this->tape, Tokens{{1, 2}}, whole); }, {"(batch 2, time)", "got (1, 2)"});
  EXPECT_THROW(model(this->tape, Tokens{{1, 2}, {9, 2}}, whole), Error);  // no such token
  EXPECT_EQ(whole.length(), 0u);
  const auto learned = language_model<T>({false, 2}, 12);
  EXPECT_EQ(learned.cache(1, 12).capacity(), 12u);
  expect_message<ShapeError>([&] { learned.cache(1, 13); }, {"[TransformerLm]", "12 positions", "13 tokens"});
}

TEST(CacheOnATape, ThatRecordsIsRefused) {
  const auto model = language_model<double>({true, 2});
  auto cache = model.cache(2, 6);
  Tape<double> tape;
  expect_message<TapeError>([&] { model(tape, two_rows, cache); },
                            {"blocks.0.self_attn: [KeyValueCache]", "no_grad()", "a tape that records"});
  EXPECT_EQ(cache.length(), 0u);
  const auto no_grad = tape.no_grad();
  EXPECT_FALSE(model(tape, two_rows, cache).requires_grad());
}

// ---- cost

TEST(CacheOnATape, AStepCopiesNothingOfWhatIsHeld) {
  const auto model = language_model<float>({true, 2});
  Tape<float> tape;
  const auto no_grad = tape.no_grad();
  auto cache = model.cache(2, 2000);
  const auto values_of_a_step = [&] {
    tape.clear();
    model(tape, times(two_rows, 0, 1), cache);
    return tape.memory().values.now + tape.memory().saved.now;
  };
  const std::size_t at_first = values_of_a_step();
  model(tape, ones_of<int>({2, 1500}), cache);
  EXPECT_EQ(values_of_a_step(), at_first);
}

}  // namespace
}  // namespace xtape::key_value_cache_test
