// The tiled kernel against the one that keeps its weights: output, weights, log-sum-exp and every gradient, whatever a
// query may look at.

#include "support.hpp"

namespace xtape::attention_kernels_test {
namespace {

/// What a case combines, as bits.
enum Part : unsigned {
  causal = 1,
  keys = 2,
  queries = 4,
  allow = 8,
  bias = 16,
  window = 32,
  dropout = 64,
  grouped = 128,
  cross = 256
};
constexpr unsigned all_parts = 511;

std::string name_of(unsigned parts, std::size_t time) {
  std::string text = fmt::format("T = {}", time);
  const char* names[] = {"causal", "keys", "queries", "allow", "bias", "window", "dropout", "grouped", "cross"};
  for (unsigned i = 0; i < 9; ++i)
    if ((parts >> i & 1u) != 0) text += fmt::format(", {}", names[i]);
  return text;
}

constexpr std::size_t batch = 2, heads = 4, key_width = 3, value_width = 5;

template <class T>
struct Results {
  xt::xarray<T> output, weights, log_sum_exp;
  std::vector<xt::xarray<T>> gradients;  // of q, k, v and, if there is one, the bias
};

/// Random hiding that leaves most pairs, and sometimes a whole row.
xt::xarray<bool> mostly(const Shape& shape, std::uint64_t seed) {
  Rng rng(seed);
  xt::xarray<bool> mask = zeros_of<bool>(shape);
  for (std::size_t i = 0; i < mask.size(); ++i) mask.flat(i) = rng.uniform() < 0.7;
  return mask;
}

/// Where gradients come from.
enum class From { output, weights_and_log_sum_exp, all };

template <class T>
Results<T> run(AttentionKernel kernel, unsigned parts, std::size_t time, From from) {
  const auto has = [&](Part part) { return (parts & part) != 0; };
  const std::size_t kv_heads = has(grouped) ? 2 : heads, tk = has(cross) ? time + 70 : time;
  Tape<T> tape(5);
  tape.set_step(3, 2);
  const Var<T> q = tape.input(random_array<T>({batch, time, heads * key_width}, 1, 2), true);
  const Var<T> k = tape.input(random_array<T>({batch, tk, kv_heads * key_width}, 2), true);
  const Var<T> v = tape.input(random_array<T>({batch, tk, kv_heads * value_width}, 3), true);
  Attend<T> attend{.causal = has(causal), .kernel = kernel};
  if (has(keys)) attend.allow_keys = tape.mask(mostly({batch, tk}, 4));
  if (has(queries)) attend.allow_queries = tape.mask(mostly({batch, time}, 5));
  if (has(allow)) attend.allow = tape.mask(mostly({batch, 1, time, tk}, 6));
  if (has(window)) attend.window = 40;
  if (has(dropout)) attend.dropout = 0.3;
  attend.kv_heads = kv_heads;
  Var<T> pairs;
  if (has(bias)) {
    xt::xarray<T> values = random_array<T>(has(causal) ? Shape{heads, time, tk} : Shape{batch, 1, tk}, 7);
    if (has(causal)) values.reshape({std::size_t{1}, heads, time, tk});
    for (std::size_t i = 0; i < values.size(); i += 7) values.flat(i) = -std::numeric_limits<T>::infinity();
    attend.bias = pairs = tape.input(values, true);
  }
  const auto [y, w, l] = attention_with_weights(q, k, v, heads, attend);
  Results<T> results{array(y), array(w), array(l), {}};
  for (T& x : results.log_sum_exp)
    if (std::isinf(x)) x = T(-1e3);  // so that a difference is a number
  const auto weighted = [](Var<T> x, std::uint64_t seed) {
    return sum(x * x.tape().input(random_array<T>(x.shape(), seed)));
  };
  const Var<T> of_output = weighted(y, 8), of_others = weighted(w, 9) + weighted(l, 10);
  tape.backward(from == From::output ? of_output : from == From::all ? of_output + of_others : of_others);
  for (const Var<T>& x : {q, k, v}) results.gradients.push_back(gradient(x));
  if (has(bias)) results.gradients.push_back(gradient(pairs));
  return results;
}

template <class T>
void compare(unsigned parts, std::size_t time, From from) {
  SCOPED_TRACE(name_of(parts, time));
  const Results<T> kept = run<T>(AttentionKernel::materialised, parts, time, from),
                   tiled = run<T>(AttentionKernel::tiled, parts, time, from);
  EXPECT_TRUE(near(tiled.output, kept.output, tolerance::two_paths<T>));
  EXPECT_TRUE(near(tiled.weights, kept.weights, tolerance::two_paths<T>));
  EXPECT_TRUE(near(tiled.log_sum_exp, kept.log_sum_exp, tolerance::two_paths<T>));
  for (std::size_t i = 0; i < kept.gradients.size(); ++i)
    EXPECT_TRUE(near(tiled.gradients[i], kept.gradients[i], tolerance::two_paths<T>)) << "gradient " << i;
}

constexpr From all_from[] = {From::output, From::weights_and_log_sum_exp, From::all};

template <class T>
class AttentionKernels : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionKernels, Scalars);

TYPED_TEST(AttentionKernels, AgreeOverTheWholeProductInShortSequences) {
  for (const std::size_t time : {1, 2, 3})
    for (unsigned parts = 0; parts <= all_parts; ++parts) compare<TypeParam>(parts, time, all_from[parts % 3]);
}

TYPED_TEST(AttentionKernels, AgreeAroundTheSizeOfATile) {
  // The product is too large here: each part alone and with each other one, all of them, and some drawn at random.
  std::vector<unsigned> some = {0, all_parts};
  for (unsigned i = 0; i < 9; ++i)
    for (unsigned j = i; j < 9; ++j) some.push_back(1u << i | 1u << j);
  Rng rng(1);
  for (int i = 0; i < 10; ++i) some.push_back(static_cast<unsigned>(rng.below(all_parts + 1)));
  std::size_t turn = 0;
  for (const std::size_t time : {63, 64, 65, 130, 257})
    for (const unsigned parts : some)
      if (time < 100 || turn % 4 == 0 || parts == all_parts)
        compare<TypeParam>(parts, time, all_from[turn++ % 3]);
      else
        ++turn;
}

TYPED_TEST(AttentionKernels, AgreeWhereTheFirstQueriesStandBeforeAllKeys) {
  using T = TypeParam;
  for (const std::size_t keys : {1, 20})
    for (const std::size_t window : {3, 40}) {
      std::vector<xt::xarray<T>> results[2];
      for (const bool tiled : {false, true}) {
        Tape<T> tape;
        const auto x = [&](std::size_t time, std::uint64_t seed) {
          return tape.input(random_array<T>({batch, time, 8}, seed), true);
        };
        const Var<T> q = x(70, 1), k = x(keys, 2), v = x(keys, 3);
        const AttentionKernel kernel = tiled ? AttentionKernel::tiled : AttentionKernel::materialised;
        const Var<T> y = attention(q, k, v, heads, {.causal = true, .window = window, .kernel = kernel});
        tape.backward(sum(exp(y)));
        results[tiled] = {array(y), gradient(q), gradient(k), gradient(v)};
      }
      for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(near(results[1][i], results[0][i], tolerance::two_paths<T>));
    }
}

TEST(AttentionGradients, OfKeysThatNoQueryOfTheirRowAsksForAreZero) {
  for (const AttentionKernel kernel : {AttentionKernel::materialised, AttentionKernel::tiled}) {
    Tape<double> tape;
    for (int round = 0; round < 2; ++round) {  // in the second gradients begin on what the first left
      tape.clear();
      const auto x = [&](std::uint64_t seed) { return tape.input(random_array<double>({2, 3, 4}, seed), true); };
      const Var<double> q = x(1), k = x(2), v = x(3);
      const Mask asking = round == 0 ? Mask() : tape.lengths(xt::xarray<int>{0, 3}, 3);
      tape.backward(sum(exp(attention(q, k * 1.0, v * 1.0, 2, {.allow_queries = asking, .kernel = kernel}))));
      for (const Var<double>& of : {k, v})
        for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(gradient(of).data()[i] == 0, round == 1);
    }
  }
}

TEST(AttentionKernelsItself, ADifferenceIsSeen) {
  const auto one = run<double>(AttentionKernel::tiled, causal, 3, From::all);
  const auto other = run<double>(AttentionKernel::tiled, window, 3, From::all);
  EXPECT_FALSE(near(one.output, other.output, tolerance::two_paths_double));
}

}  // namespace
}  // namespace xtape::attention_kernels_test
