#include <sstream>

#include "behaviour.hpp"

namespace xtape::describe_test {
namespace {

std::vector<std::string> lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

/// The words of a line, one space between them.
std::string words(const std::string& line) {
  std::istringstream stream(line);
  std::string result;
  for (std::string word; stream >> word;) result += (result.empty() ? "" : " ") + word;
  return result;
}

TEST(Describe, ALineForEachParameterAndTheTotal) {
  Rng rng(1);
  FeedForward<float> model(4, 16, rng);
  const auto table = lines(describe(model));
  ASSERT_EQ(table.size(), 5U);
  EXPECT_EQ(words(table[0]), "linear1.weight (16, 4) weight 64");
  EXPECT_EQ(words(table[1]), "linear1.bias (16,) bias 16");
  EXPECT_EQ(words(table[2]), "linear2.weight (4, 16) weight 64");
  EXPECT_EQ(words(table[3]), "linear2.bias (4,) bias 4");
  EXPECT_EQ(words(table[4]), "total 148");
  for (const auto& line : table) EXPECT_EQ(line.size(), table[0].size()) << line;  // columns line up
}

TEST(Describe, RolesAndFrozenParameters) {
  Rng rng(2);
  TransformerLm<double> model({.vocabulary = 3, .length = 2, .width = 4, .heads = 2, .layers = 1}, rng);
  model.head.weight.freeze();
  const std::string table = describe(model);
  for (const char* part : {"embedding", "gain", "bias", "weight, frozen"})
    EXPECT_NE(table.find(part), std::string::npos) << part;
  EXPECT_EQ(words(lines(table).back()), fmt::format("total {}", count(parameters<double>(model))));
}

struct Tied {
  Parameter<float> table{{5, 2}, Role::embedding}, head = table.share();
  void visit(auto&& f) { f("table", table), f("head", head); }
};

TEST(Describe, ATiedParameterCountsOnce) {
  Tied tied;
  EXPECT_EQ(lines(describe(tied)).size(), 2U);
  EXPECT_EQ(words(lines(describe(tied)).back()), "total 10");
  tied.head = Parameter<float>({5, 2});
  EXPECT_EQ(words(lines(describe(tied)).back()), "total 20");
}

struct Empty {
  Parameter<float> first{Shape{0}}, second{Shape{0}};
  void visit(auto&& f) { f("first", first), f("second", second); }
};

TEST(Describe, ModulesOfNothing) {
  Dropout dropout;
  EXPECT_EQ(words(describe(dropout)), "total 0");
  Empty empty;
  EXPECT_EQ(lines(describe(empty)).size(), 3U);
}

}  // namespace
}  // namespace xtape::describe_test
