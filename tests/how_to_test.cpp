// The code of layers/README.md: how an op and a layer are added. A test holds that page and file agree.

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "support.hpp"

namespace xtape::how_to_test {

template <class T>
Var<T> composed_gated_tanh(Var<T> x, Var<T> g) {
  return tanh(x) * sigmoid(g);
}

template <class T>
Var<T> gated_tanh(Var<T> x, Var<T> g) {
  Tape<T>& tape = tape_of("gated_tanh", x, g);
  require<ShapeError>(g.shape() == x.shape(), "[gated_tanh] g must have the shape of x {}, got {}", x.shape(),
                      g.shape());
  Var<T> y = tape.output("gated_tanh", x.shape(), x, g);  // after all checks, before anything is read
  xt::noalias(y.value()) = xt::tanh(x.value()) / (T(1) + xt::exp(-g.value()));
  tape.on_backward(y, [=] {  // handles and numbers, nothing that owns memory
    if (x.requires_grad())
      xt::noalias(x.grad()) += y.grad() * (T(1) - xt::square(xt::tanh(x.value()))) / (T(1) + xt::exp(-g.value()));
    if (g.requires_grad()) xt::noalias(g.grad()) += y.grad() * y.value() / (T(1) + xt::exp(g.value()));
  });
  return y;
}

template <class T>
Var<T> fused_gated_tanh(Var<T> x, Var<T> g) {
  Tape<T>& tape = tape_of("gated_tanh", x, g);
  require<ShapeError>(g.shape() == x.shape(), "[gated_tanh] g must have the shape of x {}, got {}", x.shape(),
                      g.shape());
  const std::size_t n = x.size();
  Var<T> y = tape.output("gated_tanh", x.shape(), x, g);
  T *const t = tape.scratch(n), *const s = tape.scratch(n);  // tanh(x) and sigmoid(g), kept until clear()
  for (std::size_t i = 0; i < n; ++i) {
    t[i] = std::tanh(x.data()[i]);
    s[i] = 1 / (1 + std::exp(-g.data()[i]));
    y.data()[i] = t[i] * s[i];
  }
  tape.on_backward(y, [=] {
    const T* const dy = y.tape().slot(y).data;
    if (x.requires_grad()) {
      const auto [dx, accumulate] = x.tape().slot(x);  // the first to come overwrites: nothing was cleared
      for (std::size_t i = 0; i < n; ++i) dx[i] = (accumulate ? dx[i] : 0) + dy[i] * s[i] * (1 - t[i] * t[i]);
    }
    if (g.requires_grad()) {
      const auto [dg, accumulate] = g.tape().slot(g);
      for (std::size_t i = 0; i < n; ++i) dg[i] = (accumulate ? dg[i] : 0) + dy[i] * t[i] * s[i] * (1 - s[i]);
    }
  });
  return y;
}

template <class T>
struct GatedTanh {
  LayerName name;
  Linear<T> filter, gate;
  GatedTanh(std::size_t in, std::size_t out, Rng& rng) : filter(in, out, rng), gate(in, out, rng) {}
  Var<T> operator()(Var<T> x) const {
    const auto here = name.enter();
    return gated_tanh(filter(x), gate(x));
  }
  void visit(auto&& f) {
    f("filter", filter);
    f("gate", gate);
  }
};

/// With a factor of dg forgotten.
template <class T>
Var<T> wrong_gated_tanh(Var<T> x, Var<T> g) {
  Var<T> y = x.tape().output("gated_tanh", x.shape(), x, g);
  const auto sigmoid_of = [](T v) { return 1 / (1 + std::exp(-v)); };
  const std::size_t n = x.size();
  for (std::size_t i = 0; i < n; ++i) y.data()[i] = std::tanh(x.data()[i]) * sigmoid_of(g.data()[i]);
  x.tape().on_backward(y, [=] {
    const T* const dy = y.grad().data();
    if (x.requires_grad())
      for (std::size_t i = 0; i < n; ++i)
        x.grad().data()[i] += dy[i] * (1 - std::pow(std::tanh(x.data()[i]), T(2))) * sigmoid_of(g.data()[i]);
    if (g.requires_grad())
      for (std::size_t i = 0; i < n; ++i) g.grad().data()[i] += dy[i] * y.data()[i];
  });
  return y;
}

template <class T>
struct WrongGatedTanh : GatedTanh<T> {
  using GatedTanh<T>::GatedTanh;
  Var<T> operator()(Var<T> x) const { return wrong_gated_tanh(this->filter(x), this->gate(x)); }
};

namespace {

TEST(HowTo, TheOpIsRight) {
  const auto op = [](auto x, auto g) { return gated_tanh(x, g); };
  EXPECT_TRUE(gradcheck(op, {{2, 3}, {2, 3}}));
  EXPECT_TRUE(gradcheck([](auto x) { return gated_tanh(x, x); }, {{2, 3}}));
}

TEST(HowTo, TheFusedOpAgreesWithTheComposedOne) {
  const auto composed = [](auto x, auto g) { return composed_gated_tanh(x, g); };
  const auto fused = [](auto x, auto g) { return fused_gated_tanh(x, g); };
  EXPECT_TRUE(gradcheck(composed, {{2, 3}, {2, 3}}));
  EXPECT_TRUE(gradcheck(fused, {{2, 3}, {2, 3}}));
  EXPECT_TRUE(gradcheck([](auto x) { return fused_gated_tanh(x, x); }, {{2, 3}}));

  Tape<double> tape;
  const Var<double> x = tape.input(random_array<double>({2, 3}, 1)), g = tape.input(random_array<double>({2, 3}, 2));
  EXPECT_TRUE(near(array(fused(x, g)), array(composed(x, g)), tolerance::two_paths_double));
  EXPECT_TRUE(near(array(gated_tanh(x, g)), array(composed(x, g)), tolerance::two_paths_double));
}

TEST(HowTo, TheLayerIsRight) {
  Rng rng(1);
  GatedTanh<double> layer(6, 4, rng);
  const GradcheckReport report = gradcheck(layer, {{2, 3, 6}});
  EXPECT_TRUE(report) << report;
}

TEST(HowTo, ATextIsContinued) {
  Rng rng(1);
  const TransformerLm<float> model({.vocabulary = 6, .length = 128, .width = 8, .heads = 2, .layers = 1}, rng);
  TokenRows answers =
      generate(model, TokenRows{{4, 1, 5}, {2}}, {.new_tokens = 100, .temperature = 0.8, .top_p = 0.95});
  EXPECT_EQ(answers.size(), 2U);
}

TEST(HowTo, ARandomNumberIsTheSameInEveryRun) {
  const auto dropped = [](Tape<double>& tape, auto x) {
    tape.set_step(0);
    return dropout(x, 0.5);
  };
  EXPECT_TRUE(gradcheck(dropped, {{4, 5}}));
}

// ---- the page

/// Lines without what they are indented by, and without empty ones.
std::string flattened(const std::string& text) {
  std::istringstream lines(text);
  std::string result = "\n";
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t begin = line.find_first_not_of(' '); begin != std::string::npos)
      result += line.substr(begin) + "\n";
  return result;
}

std::string read(const char* path) {
  std::ifstream file(std::filesystem::path(XTAPE_SOURCE_DIR) / path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> code_of(const std::string& page) {
  const std::string fence = "```cpp\n";
  std::vector<std::string> blocks;
  for (std::size_t at = page.find(fence); at != std::string::npos; at = page.find(fence, at)) {
    at += fence.size();
    blocks.push_back(page.substr(at, page.find("```", at) - at));
  }
  return blocks;
}

/// The lines of a text with numbers as # and without what aligns them. Which tensor is worst depends on the numbers, so
/// the order of the lines is that of the alphabet.
std::multiset<std::string> without_numbers(const std::string& text) {
  const std::string signs = std::regex_replace(text, std::regex(R"(-?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?)"), "#");
  std::istringstream lines(std::regex_replace(signs, std::regex(" +"), " "));
  std::multiset<std::string> result;
  for (std::string line; std::getline(lines, line);) result.insert(line);
  return result;
}

TEST(HowTo, ThePageShowsTheReportOfAWrongGradient) {
  Rng rng(1);
  const GradcheckReport report = gradcheck(WrongGatedTanh<double>(6, 4, rng), {{2, 3, 6}});
  EXPECT_FALSE(report);
  const std::string page = read("layers/README.md"), fence = "```text\n";
  const std::size_t begin = page.find(fence) + fence.size();
  EXPECT_EQ(without_numbers(page.substr(begin, page.find("```", begin) - begin)), without_numbers(to_string(report)))
      << report;
}

TEST(HowTo, ThePageShowsTheCodeOfThisFile) {
  const std::string file = flattened(read("tests/how_to_test.cpp"));
  const auto blocks = code_of(read("layers/README.md"));
  EXPECT_GE(blocks.size(), 7U);
  for (const std::string& block : blocks)
    EXPECT_NE(file.find(flattened(block)), std::string::npos) << "is not in tests/how_to_test.cpp:\n" << block;
  EXPECT_EQ(file.find(flattened("const auto op = other;\n")), std::string::npos);
}

}  // namespace
}  // namespace xtape::how_to_test
