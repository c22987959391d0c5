// What a profile says: the work of an op, the tables, the trace.

#include <nlohmann/json.hpp>
#include <regex>

#include "files.hpp"
#include "slow_op.hpp"

namespace xtape::profile_output_test {
namespace {

// ---- the work of an op

TEST(ProfileCost, CountsTheProductsOfWhatNeedsAGradient) {
  Tape<double> tape;
  const auto x = tape.input(random_array<double>({2, 3, 4}, 1)), w = tape.input(random_array<double>({5, 4}, 2), true),
             b = tape.input(random_array<double>({5}, 3), true), y = linear(x, w, b);
  EXPECT_EQ(forward_cost(y).flop, 2 * 2 * 3 * 4 * 5);
  EXPECT_EQ(forward_cost(y).bytes, 8 * (24 + 20 + 5 + 30));
  EXPECT_EQ(backward_cost(y).flop, 2 * 2 * 3 * 4 * 5);  // of the weight alone
  EXPECT_EQ(backward_cost(y).bytes, 8 * (24 + 2 * 20 + 2 * 5 + 30));
  for (const auto fused : {linear_gelu(x, w, b), linear_gelu_tanh(x, w, b)}) {
    EXPECT_EQ(forward_cost(fused).flop, forward_cost(y).flop);
    EXPECT_EQ(backward_cost(fused).flop, backward_cost(y).flop);
  }
  const auto product = matmul(y, exp(tape.input(random_array<double>({2, 5, 6}, 4), true)));
  EXPECT_EQ(forward_cost(product).flop, 2 * 2 * 3 * 5 * 6);
  EXPECT_EQ(backward_cost(product).flop, 2 * forward_cost(product).flop);
  EXPECT_EQ(forward_cost(exp(y)).flop, 0);
  EXPECT_EQ(backward_cost(exp(y)).bytes, 8 * 3 * 30);
}

TEST(ProfileCost, CountsScoresAndWeightedSumsOfAttention) {
  Tape<double> tape;
  const auto q = tape.input(random_array<double>({2, 3, 8}, 1), true),
             k = tape.input(random_array<double>({2, 5, 4}, 2), true),
             v = tape.input(random_array<double>({2, 5, 6}, 3), true), y = attention(q, k, v, 4, {.kv_heads = 2});
  ASSERT_EQ(y.shape(), (Shape{2, 3, 12}));
  EXPECT_EQ(forward_cost(y).flop, 2 * 2 * 3 * 5 * (8 + 12));
  EXPECT_EQ(backward_cost(y).flop, 2 * forward_cost(y).flop);
  const auto packed = attention_packed(tape.input(random_array<double>({2, 3, 24}, 1), true), 2, {.causal = true});
  EXPECT_EQ(forward_cost(packed).flop, 2 * 2 * 3 * 3 * (8 + 8));
}

TEST(ProfileCost, CountsWhatIsReadOfATable) {
  Tape<double> tape;
  const auto rows = embedding(tape.input(random_array<double>({1000, 4}, 1), true), xt::xarray<int>{1, 2});
  EXPECT_EQ(forward_cost(rows).bytes, 8 * (8 + 8));
  EXPECT_EQ(forward_cost(one_hot(tape, tape.integers(xt::xarray<int>{0, 1}), 3)).bytes, 8 * 6);
}

// ---- tables

TEST(ProfileText, IsPerRunOfTheSpanThatWasAskedFor) {
  Tape<double> tape;
  Profile<double> profile(tape);
  const auto x = tape.input(random_array<double>({2, 3}, 1), true);
  exp(x);
  for (int i = 0; i < 4; ++i) {
    const auto step = tape.span("step");
    LayerName name;
    name.set("blocks." + std::to_string(i) + ".linear1");
    const auto here = name.enter();
    const auto y = linear(slow_op("slow", slow_op("slow", x)), tape.input(random_array<double>({2, 3}, 2)));
    const auto nested = tape.span("backward");
    tape.backward(sum(y));
  }
  const std::string text = profile.to_text("step"), nested = profile.to_text("backward"), all = profile.to_text();
  const auto has = [](const std::string& in, const char* pattern) {
    return std::regex_search(in, std::regex(pattern, std::regex::multiline));
  };
  EXPECT_TRUE(has(text, R"(^step: 4 of \d+\.\d{3} ms, \d+\.\d GFLOP/s$)")) << text;
  EXPECT_TRUE(has(text, R"(^slow +2 +\d+\.\d{3} +\d+\.\d% +\d+\.\d$)")) << text;
  EXPECT_TRUE(has(text, R"(^slow backward +2 )")) << text;
  EXPECT_TRUE(has(text, R"(^\(backward\) +1 )")) << text;
  EXPECT_TRUE(has(text, R"(^blocks\.\*\.linear1 +\d)")) << text;
  EXPECT_LT(text.find("slow"), text.find("linear")) << "the longest first\n" << text;
  EXPECT_TRUE(has(text, R"(^\(span\): )")) << text;
  EXPECT_FALSE(has(text, "^exp")) << text;
  EXPECT_TRUE(has(nested, R"(^backward: 4 of )")) << nested;
  EXPECT_TRUE(has(nested, R"(^slow backward +2 )")) << nested;
  EXPECT_FALSE(has(nested, R"(^slow +\d)")) << nested;
  EXPECT_TRUE(has(all, R"(^exp +1 )")) << all;
  EXPECT_TRUE(has(all, R"(^slow +8 )")) << all;
  expect_message<Error>([&] { profile.to_text("steps"); }, {"[profile]", "[backward, step]", "got steps"});
}

TEST(ProfileText, CountsASpanWithinOneOfTheSameNameOnce) {
  Tape<double> tape;
  Profile<double> profile(tape);
  {
    const auto outer = tape.span("again"), inner = tape.span("again");
    exp(tape.input(1.0));
  }
  const std::string text = profile.to_text("again");
  EXPECT_EQ(text.rfind("again: 1 of ", 0), 0u) << text;
  EXPECT_NE(text.find("\n(again)      2 "), std::string::npos) << text;
}

TEST(ProfileText, OfNothingIsATableWithoutRows) {
  Tape<double> tape;
  const Profile<double> profile(tape);
  EXPECT_NE(profile.to_text().find("GFLOP/s"), std::string::npos);
  expect_message<Error>([&] { profile.to_text("step"); }, {"expected the name of a span that has ended, one of []"});
}

// ---- traces

nlohmann::json trace_of(const ProfileLog& log) {
  const TemporaryFolder folder;
  log.write_chrome_trace(folder / "trace.json");
  return nlohmann::json::parse(read_bytes(folder / "trace.json"));
}

/// The complete events of a trace with this name.
std::vector<nlohmann::json> events(const nlohmann::json& trace, const std::string& name) {
  std::vector<nlohmann::json> found;
  for (const auto& event : trace.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("name") == name) found.push_back(event);
  return found;
}

TEST(ProfileTrace, HoldsEveryOpWithinItsSpan) {
  Tape<double> tape;
  Profile<double> profile(tape);
  LayerName name;
  name.set("middle");
  {
    const auto step = tape.span("step");
    const auto here = name.enter();
    tape.backward(sum(slow_op("slow", tape.input(random_array<double>({2, 3}, 1), true))));
  }
  const auto trace = trace_of(profile);
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  EXPECT_EQ(profile.events(), 5u);
  EXPECT_EQ(trace["traceEvents"].size(), 2u + 5u);
  const auto step = events(trace, "step").at(0), forward = events(trace, "slow").at(0),
             backward = events(trace, "slow backward").at(0);
  EXPECT_EQ(forward["args"]["shape"], (std::vector<int>{2, 3}));
  EXPECT_EQ(forward["args"]["layer"], "middle");
  EXPECT_EQ(backward["cat"], "backward");
  const auto begin = [](const nlohmann::json& e) { return e.at("ts").get<double>(); };
  const auto end = [&](const nlohmann::json& e) { return begin(e) + e.at("dur").get<double>(); };
  EXPECT_GE(begin(forward), begin(step));
  EXPECT_GE(begin(backward), end(forward));
  EXPECT_LE(end(backward), end(step) + 0.002);  // times are rounded to nanoseconds
  EXPECT_GE(forward["dur"].get<double>(), nap * 1e6);
}

TEST(ProfileTrace, KeepsTheFirstWholeSpansAndSaysSo) {
  Tape<double> tape;
  Profile<double> profile(tape, 8);
  for (int i = 0; i < 3; ++i) {
    const auto step = tape.span("step");
    exp(exp(tape.input(1.0)));
  }
  EXPECT_EQ(profile.events(), 9u);
  EXPECT_EQ(profile.traced_events(), 6u);
  const auto trace = trace_of(profile);
  EXPECT_EQ(events(trace, "step").size(), 2u);
  EXPECT_EQ(events(trace, "exp").size(), 4u);
  EXPECT_EQ(trace["otherData"]["events"], 9);
  EXPECT_EQ(trace["otherData"]["traced"], 6);
  EXPECT_NE(profile.to_text("step").find("step: 3 of"), std::string::npos) << "the tables know them all";
}

TEST(ProfileTrace, IsValidWhateverNamesHold) {
  Tape<double> tape;
  Profile<double> profile(tape);
  {
    const auto odd = tape.span("a \"quoted\" \\ name\nof \x01 two lines");
    const auto invalid = tape.span("\xff");
  }
  const auto trace = trace_of(profile);
  EXPECT_EQ(events(trace, "a \"quoted\" \\ name\nof \x01 two lines").size(), 1u);
  EXPECT_EQ(trace["traceEvents"].size(), 4u);
}

TEST(ProfileTrace, ThatCannotBeWrittenIsASentence) {
  const TemporaryFolder folder;
  Tape<double> tape;
  const Profile<double> profile(tape);
  expect_message<Error>([&] { profile.write_chrome_trace(folder / "missing" / "trace.json"); },
                        {"[profile]", "missing/trace.json cannot be written: No such file"});
  EXPECT_EQ(folder.entries(), 0u);
}

}  // namespace
}  // namespace xtape::profile_output_test
