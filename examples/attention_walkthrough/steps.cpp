#include "attention_walkthrough/steps.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <xtape/framework/base/hash.hpp>
#include <xtape/framework/base/random.hpp>

namespace examples {

using xtape::Shape, xtape::Tape, xtape::Var;

Var<double> split_heads(Var<double> x, std::size_t heads) {
  const Shape s = x.shape();
  return transpose(reshape(x, {s[0], heads, s[1] / heads}), {1, 0, 2});
}

Var<double> merge_heads(Var<double> x) {
  const Shape s = x.shape();
  return reshape(transpose(x, {1, 0, 2}), {s[1], s[0] * s[2]});
}

xt::xarray<bool> causal_mask(std::size_t time) {
  xt::xarray<bool> mask = xt::zeros<bool>({time, time});
  for (std::size_t i = 0; i < time; ++i)
    for (std::size_t j = 0; j <= i; ++j) mask(i, j) = true;
  return mask;
}

Steps attention_steps(Tape<double>& tape, const Lesson& lesson, const Nudge& nudge) {
  Steps steps;
  const auto step = [&](const std::string& name, Var<double> x) {
    if (name == nudge.step) {
      Array change = xt::zeros<double>(x.value().shape());
      change.flat(nudge.index) = nudge.amount;
      x = x + tape.input(change);
    }
    if (x.requires_grad()) tape.retain_grad(x);
    steps.steps_.emplace_back(name, x);
    return x;
  };
  const auto given = [&](const std::string& name) {
    return step(name, tape.input(lesson.given.at(name), /*requires_grad=*/true));
  };
  // (.., m, k) (.., k, n): k multiply-adds for every element of the result
  const auto product = [&](const std::string& name, Var<double> a, Var<double> b) {
    const Var<double> y = matmul(a, b);
    steps.multiply_adds_[name] = y.size() * a.shape().back();
    return y;
  };
  const Var<double> x = given("X");
  const Var<double> w_q = given("W_Q"), w_k = given("W_K"), w_v = given("W_V"), w_o = given("W_O");
  const Var<double> b_q = given("b_Q"), b_k = given("b_K"), b_v = given("b_V"), b_o = given("b_O");

  const Var<double> q = step("Q", product("Q", x, w_q) + b_q);
  const Var<double> k = step("K", product("K", x, w_k) + b_k);
  const Var<double> v = step("V", product("V", x, w_v) + b_v);
  const Var<double> q_heads = step("Q_h", split_heads(q, lesson.heads));
  const Var<double> k_heads = step("K_h", split_heads(k, lesson.heads));
  const Var<double> v_heads = step("V_h", split_heads(v, lesson.heads));
  const Var<double> scores = step("S", product("S", q_heads, transpose(k_heads, {0, 2, 1})));
  const Var<double> scaled = step("S_scaled", scores * (1 / std::sqrt(static_cast<double>(lesson.head_width()))));
  constexpr double hidden = -std::numeric_limits<double>::infinity();
  const Var<double> masked =
      step("S_masked", lesson.causal ? where(causal_mask(lesson.tokens.size()), scaled, hidden) : scaled);
  const Var<double> weights = step("P", softmax(masked));
  const Var<double> heads = step("O_h", product("O_h", weights, v_heads));
  const Var<double> merged = step("O", merge_heads(heads));
  step("Y", product("Y", merged, w_o) + b_o);
  return steps;
}

double loss(Tape<double>& tape, const Lesson& lesson, const Nudge& nudge) {
  tape.clear();
  const auto guard = tape.no_grad();
  return sum(attention_steps(tape, lesson, nudge)["Y"] * tape.input(lesson.dY)).item();
}

Var<double> Steps::operator[](const std::string& name) const {
  const auto found = std::find_if(steps_.begin(), steps_.end(), [&](const auto& step) { return step.first == name; });
  xtape::require(found != steps_.end(), "there is no step named {}", name);
  return found->second;
}

std::size_t Steps::multiply_adds(const std::string& name) const {
  const auto found = multiply_adds_.find(name);
  return found == multiply_adds_.end() ? 0 : found->second;
}

namespace {

Array normal(const Shape& shape, xtape::Rng& rng, double deviation) {
  Array x = xt::zeros<double>(std::vector<std::size_t>(shape.begin(), shape.end()));
  for (double& element : x) element = deviation * rng.normal();
  return x;
}

}  // namespace

Lesson lesson_of(std::vector<std::string> tokens, std::size_t width, std::size_t heads, bool causal,
                 std::uint64_t seed) {
  Lesson lesson{std::move(tokens), width, heads, causal, seed, {}, {}};
  const std::size_t time = lesson.tokens.size();
  xtape::Rng rng(seed);
  for (const char* name : {"W_Q", "W_K", "W_V", "W_O"})
    lesson.given[name] = normal({width, width}, rng, 1 / std::sqrt(static_cast<double>(width)));
  for (const char* name : {"b_Q", "b_K", "b_V", "b_O"}) lesson.given[name] = normal({width}, rng, 0.1);
  lesson.dY = normal({time, width}, rng, 1);

  Array& x = lesson.given["X"] = xt::zeros<double>({time, width});
  for (std::size_t t = 0; t < time; ++t) {
    xtape::Rng own(seed, xtape::fnv1a(lesson.tokens[t]));
    for (std::size_t i = 0; i < width; ++i) x(t, i) = own.normal();
  }
  return lesson;
}

double largest_difference(xtape::Var<double> a, xtape::Var<double> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a.data()[i] - b.data()[i]));
  return largest;
}

}  // namespace examples
