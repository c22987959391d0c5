// The profile: what it counts, whom it charges, and that it changes nothing. Times are bounded from below alone, and
// added up.

#include "slow_op.hpp"

namespace xtape::profile_test {
namespace {

using Array = xt::xarray<double>;

/// The sum of all entries of a kind, name and layer.
ProfileEntry sum_of(const ProfileLog& log, ProfileKind kind, const std::string& name, const std::string& layer = "") {
  ProfileEntry sum{kind, name, layer};
  for (const ProfileEntry& e : log.entries())
    if (e.kind == kind && e.name == name && e.layer == layer) {
      sum.calls += e.calls, sum.seconds += e.seconds, sum.self_seconds += e.self_seconds;
      sum.flop += e.flop, sum.bytes += e.bytes;
    }
  return sum;
}
ProfileEntry forward(const ProfileLog& log, const std::string& name, const std::string& layer = "") {
  return sum_of(log, ProfileKind::forward, name, layer);
}
ProfileEntry backward(const ProfileLog& log, const std::string& name, const std::string& layer = "") {
  return sum_of(log, ProfileKind::backward, name, layer);
}
ProfileEntry span(const ProfileLog& log, const std::string& name) { return sum_of(log, ProfileKind::span, name); }

/// Whether what was profiled, which all lies in spans of this name, took as long as the spans did: no time was lost,
/// and none was counted twice.
testing::AssertionResult adds_up(const ProfileLog& log, const std::string& name) {
  double sum = 0;
  for (const ProfileEntry& e : log.entries()) {
    sum += e.self_seconds;
    if (e.self_seconds < 0 || e.seconds < e.self_seconds)
      return testing::AssertionFailure() << e.name << ": " << e.seconds << " s, of its own " << e.self_seconds;
  }
  const double whole = span(log, name).seconds;
  if (whole > 0 && std::abs(sum - whole) < 1e-9 * static_cast<double>(log.events() + 1))
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << sum << " s in " << whole << " s";
}

TEST(Profile, CountsEveryOpByLayerAndDirection) {
  Rng rng(1);
  TransformerLm<double> model({.vocabulary = 7, .length = 5, .width = 8, .heads = 2, .layers = 2}, rng);
  Tape<double> tape;
  Profile<double> profile(tape);
  const auto tokens = xt::xarray<int>{{1, 2, 3}, {4, 5, 6}};
  for (int i = 0; i < 3; ++i) {
    const auto step = tape.span("step");
    tape.clear();
    tape.backward(cross_entropy(model(tape, tokens), tokens));
  }
  for (const char* layer : {"blocks.0.linear2", "blocks.1.linear2", "blocks.0.self_attn", "head"}) {
    EXPECT_EQ(forward(profile, "linear", layer).calls, 3u) << layer;
    EXPECT_EQ(backward(profile, "linear", layer).calls, 3u) << layer;
  }
  EXPECT_EQ(forward(profile, "add", "blocks.1").calls, 6u);
  EXPECT_EQ(forward(profile, "cross_entropy").calls, 3u);
  EXPECT_EQ(span(profile, "step").calls, 3u);
  EXPECT_TRUE(adds_up(profile, "step"));
}

TEST(Profile, ChargesAnOpFromItsOpeningToItsClosing) {
  Tape<double> tape;
  Profile<double> profile(tape);
  {
    const auto step = tape.span("step");
    const auto y = slow_op("slow", tape.input(Array{1, 2}, true));
    take_a_nap();
    tape.backward(sum(y));
  }
  EXPECT_GE(forward(profile, "slow").self_seconds, nap);
  EXPECT_GE(backward(profile, "slow").self_seconds, nap);
  EXPECT_GE(span(profile, "step").self_seconds, nap);
  EXPECT_TRUE(adds_up(profile, "step"));
}

TEST(Profile, ChargesAnOpAlikeWhereNothingIsRecorded) {
  Tape<double> tape;
  Profile<double> profile(tape);
  {
    const auto step = tape.span("evaluation");
    const auto guard = tape.no_grad();
    const auto x = tape.input(Array{1, 2}, true);
    for (int i = 0; i < 2; ++i) {
      const auto scope = tape.scope();
      slow_op("slow", exp(x));
      take_a_nap();  // is nobody's
    }
  }
  EXPECT_EQ(forward(profile, "slow").calls, 2u);
  EXPECT_EQ(forward(profile, "exp").calls, 2u);
  EXPECT_GE(forward(profile, "slow").self_seconds, 2 * nap);
  EXPECT_GE(span(profile, "evaluation").self_seconds, 2 * nap);
  EXPECT_TRUE(adds_up(profile, "evaluation"));
}

TEST(Profile, CountsAnOpWithSeveralOutputsOnce) {
  Rng rng(1);
  MultiHeadAttention<double> attention(8, 2, rng);
  Tape<double> tape;
  Profile<double> profile(tape);
  for (const bool gradient : {true, false}) {
    const auto step = tape.span("step");
    tape.clear();
    const auto x = tape.input(random_array<double>({2, 3, 8}, 1), gradient);
    std::optional<Tape<double>::NoGrad> guard;
    if (!gradient) guard.emplace(tape);
    const auto result = attention.with_weights(x, x, x);
    if (gradient) tape.backward(sum(result.output) + sum(result.weights) + sum(result.log_sum_exp));
  }
  EXPECT_EQ(forward(profile, "attention_with_weights").calls, 2u);
  EXPECT_EQ(backward(profile, "attention_with_weights").calls, 1u);
  // q, k, v and the output (2, 3, 8), the weights (2, 2, 3, 3) and the log-sum-exp (2, 2, 3)
  EXPECT_EQ(forward(profile, "attention_with_weights").bytes, 2 * 8 * (4 * 48 + 36 + 12));
  EXPECT_TRUE(adds_up(profile, "step"));
}

TEST(Profile, TakesTheTimeOfOpsInsideAnOpFromItsOwn) {
  Tape<double> tape;
  Profile<double> profile(tape);
  {
    const auto step = tape.span("step");
    const auto x = tape.input(Array{1, 2});
    slow_op("outer", x, [&] { slow_op("inner", exp(x)), one_hot(tape, tape.integers(xt::xarray<int>{0}), 2); });
  }
  for (const char* name : {"outer", "inner", "exp", "one_hot"}) EXPECT_EQ(forward(profile, name).calls, 1u) << name;
  const ProfileEntry outer = forward(profile, "outer"), inner = forward(profile, "inner");
  EXPECT_GE(outer.seconds, 2 * nap);
  EXPECT_GE(inner.seconds, nap);
  EXPECT_LE(outer.self_seconds, outer.seconds - inner.seconds);
  EXPECT_TRUE(adds_up(profile, "step"));
}

TEST(Profile, EndsAnOpThatIsNotClosedWhenTheNextThingBegins) {
  Tape<double> tape;
  Profile<double> profile(tape);
  const auto indices = [&] { return tape.integers(xt::xarray<int>{0, 1}); };
  for (int i = 0; i < 2; ++i) {
    const auto step = tape.span("step");
    tape.clear();
    const auto x = one_hot(tape, indices(), 3);
    {
      const auto data = tape.span("data");
      take_a_nap();
    }
    one_hot(tape, indices(), 3);
    slow_op("slow", x);
  }
  const ProfileEntry one = forward(profile, "one_hot");
  EXPECT_EQ(one.calls, 4u);
  EXPECT_EQ(one.seconds, one.self_seconds);  // nothing is within it
  EXPECT_LE(one.seconds,
            span(profile, "step").seconds - span(profile, "data").seconds - forward(profile, "slow").seconds);
  EXPECT_GE(span(profile, "data").self_seconds, 2 * nap);
  EXPECT_EQ(forward(profile, "slow").calls, 2u);
  EXPECT_TRUE(adds_up(profile, "step"));
}

TEST(Profile, IsGoodAfterAnOpHasThrown) {
  struct Failure {};
  Tape<double> tape;
  Profile<double> profile(tape);
  const auto fail = [] { throw Failure{}; };
  for (const bool in_span : {true, false}) {
    tape.clear();
    std::optional<Tape<double>::Span> step;
    if (in_span) step.emplace(tape, "step");
    const auto x = exp(tape.input(Array{1, 2}, true));
    EXPECT_THROW(slow_op("failing", x, fail), Failure);
  }
  tape.clear();
  exp(tape.input(Array{1, 2}));  // the last one had no span around it that could have ended it
  EXPECT_EQ(forward(profile, "failing").calls, 2u);
  tape.clear();
  EXPECT_THROW(slow_op("failing", tape.input(Array{1, 2}, true), fail), Failure);
  for (const bool fails : {true, false}) {
    const auto step = tape.span("step");
    tape.clear();
    const auto x = tape.input(Array{1, 2}, true), y = tape.output("sometimes", {2}, x);
    xt::noalias(y.value()) = 1.0 * x.value();
    tape.on_backward(y, [=] {
      if (fails) throw Failure{};
      xt::noalias(x.grad()) += y.grad();
    });
    if (fails)
      EXPECT_THROW(tape.backward(sum(y)), Failure);
    else
      tape.backward(sum(y));
  }
  EXPECT_EQ(forward(profile, "failing").calls, 3u);
  EXPECT_EQ(backward(profile, "sometimes").calls, 2u);
  EXPECT_EQ(backward(profile, "sum").calls, 2u);
  EXPECT_EQ(span(profile, "step").calls, 3u);
  for (const ProfileEntry& e : profile.entries()) EXPECT_TRUE(e.self_seconds >= 0 && e.self_seconds <= e.seconds);
}

TEST(Profile, KeepsTwoTapesApartAndEndsWithItsBlock) {
  Tape<double> one, two;
  Profile<double> first(one);
  {
    Profile<double> second(two);
    const auto here = one.span("here");
    exp(one.input(1.0)), exp(two.input(1.0)), sin(two.input(1.0));
    EXPECT_EQ(forward(second, "exp").calls, 1u);
    EXPECT_EQ(forward(second, "sin").calls, 1u);
  }
  sin(two.input(1.0));
  EXPECT_EQ(forward(first, "exp").calls, 1u);
  EXPECT_EQ(forward(first, "sin").calls, 0u);
}

TEST(Profile, TakesSpansWithinSpansAndNoneThatBeganBefore) {
  Tape<double> tape;
  std::optional<Tape<double>::Span> before(std::in_place, tape, "before");
  Profile<double> profile(tape);
  for (int i = 0; i < 2; ++i) {
    const auto outer = tape.span("outer");
    const auto inner = tape.span("inner"), innermost = tape.span("inner");
    take_a_nap();
  }
  before.reset();
  exp(tape.input(1.0));  // stands in no span
  EXPECT_EQ(span(profile, "before").calls, 0u);
  EXPECT_EQ(span(profile, "outer").calls, 2u);
  EXPECT_EQ(span(profile, "inner").calls, 4u);
  EXPECT_GE(span(profile, "outer").seconds, 2 * nap);
  const auto& entries = profile.entries();
  ASSERT_EQ(entries.size(), 5u);  // the whole, outer, inner, inner, exp
  EXPECT_EQ(entries[2].within, 1u);
  EXPECT_EQ(entries[3].within, 2u);
  EXPECT_EQ(entries[4].within, 0u);
  EXPECT_GE(entries[3].self_seconds, 2 * nap);
}

TEST(Profile, LeavesEveryBitAsItIs) {
  const auto trained = [](bool profiled) {
    Rng rng(1);
    TransformerLm<float> model(
        {.vocabulary = 7, .length = 8, .width = 16, .heads = 2, .layers = 2, .block = {.dropout = 0.1}}, rng);
    AdamW<float> optimizer(parameters<float>(model), {});
    Tape<float> tape(3);
    std::optional<Profile<float>> profile;
    if (profiled) profile.emplace(tape);
    const auto tokens = xt::xarray<int>{{1, 2, 3, 0, 2, 2}, {4, 5, 6, 1, 1, 6}};
    std::vector<float> numbers;
    for (int i = 0; i < 3; ++i) {
      const auto step = tape.span("step");
      tape.clear();
      const auto loss = cross_entropy(model(tape, tokens), tokens);
      numbers.push_back(loss.item());
      optimizer.zero_grad();
      tape.backward(loss);
      const auto here = tape.span("optimizer");
      optimizer.step();
    }
    for (const auto& [name, parameter] : parameters<float>(model))
      numbers.insert(numbers.end(), parameter.data(), parameter.data() + parameter.size());
    return numbers;
  };
  EXPECT_EQ(trained(true), trained(false));
}

}  // namespace
}  // namespace xtape::profile_test
