// What the usual mistakes do, measured.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <xtape/framework/base/random.hpp>

#include "attention_walkthrough/chapters.hpp"
#include "attention_walkthrough/page.hpp"
#include "common/utf8.hpp"

namespace examples {

using xtape::Rng, xtape::Tape, xtape::Var;

namespace {

double standard_deviation(Var<double> x) { return sqrt(var(x, /*correction=*/0)).item(); }

/// Mean over the rows of -Σ p log p, in nats: log T where all T keys count alike, 0 where one key has everything.
double entropy(Var<double> weights) {
  double total = 0;
  for (const double p : weights.value()) total -= p > 0 ? p * std::log(p) : 0;
  return total / static_cast<double>(weights.shape().rows());
}
double mean_of_largest(Var<double> weights) { return mean(max(weights, -1)).item(); }

void print_no_scale(const Lesson& lesson) {
  constexpr std::size_t time = 64;
  print_step("Mistake: no scale", "softmax(Q Kᵀ) instead of softmax(Q Kᵀ / √d_k)");
  print_text(fmt::format(
      "Measured with {} random queries and keys of standard deviation 1. Without the division scores spread like √d_k. "
      "Softmax then gives nearly everything to one key: the entropy falls far below log {} = {}, at which all keys "
      "count alike. Gradients pass through P (dP - mean), which is nearly 0 where P is nearly 0 or 1: a head like this "
      "hardly learns.",
      time, time, number_text(std::log(static_cast<double>(time)))));
  fmt::print("   {:27}{:>18}{:>24}{:>24}\n", "", "deviation of S", "entropy of P", "largest P of a row");
  fmt::print("   {:>6}{:>9}{:>18}{:>12}{:>12}{:>12}{:>12}{:>12}\n", "d_k", "√d_k", "without", "with", "without", "with",
             "without", "with");
  for (const std::size_t width : {std::size_t{4}, std::size_t{16}, std::size_t{64}, std::size_t{256}}) {
    Tape<double> tape;
    Rng rng(lesson.seed, width);
    const auto normal = [&] {
      Array x = xt::zeros<double>({time, width});
      for (double& element : x) element = rng.normal();
      return tape.input(x);
    };
    const Var<double> q = normal(), k = normal();
    const double root = std::sqrt(static_cast<double>(width));
    const Var<double> without = matmul(q, transpose(k)), with = without * (1 / root);
    const Var<double> p_without = softmax(without), p_with = softmax(with);
    fmt::print("   {:>6}{:>9.1f}{:>18.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}\n", width, root,
               standard_deviation(without), standard_deviation(with), entropy(p_without), entropy(p_with),
               mean_of_largest(p_without), mean_of_largest(p_with));
  }
}

double row_sum(const Matrix& weights, std::size_t row) {
  double total = 0;
  for (std::size_t j = 0; j < weights.shape(1); ++j) total += weights(row, j);
  return total;
}

/// Head 0's weights with the causal mask before the softmax, and with hidden places set to 0 behind it.
struct BothWays {
  Matrix before, after;
};
BothWays mask_both_ways(const Lesson& lesson) {
  Tape<double> tape;
  const Var<double> scores = attention_steps(tape, lesson)["S_scaled"];
  const auto visible = causal_mask(lesson.tokens.size());
  return {matrix_of(softmax(where(visible, scores, -std::numeric_limits<double>::infinity()))),
          matrix_of(where(visible, softmax(scores), 0.0))};
}

void print_mask_after_softmax(const Lesson& lesson) {
  const auto [before, after] = mask_both_ways(lesson);
  Lesson changed = lesson;  // the last token becomes another one
  const std::size_t last = lesson.tokens.size() - 1;
  for (std::size_t i = 0; i < lesson.width; ++i) changed.given["X"](last, i) *= -1;
  const auto [changed_before, changed_after] = mask_both_ways(changed);

  print_step("Mistake: mask after softmax", "hidden weights set to 0", "causal mask, head 0");
  print_text(
      "Softmax has shared out 1 among all keys; what hidden keys got is then thrown away. So rows no longer sum to 1, "
      "and early tokens, which see few keys, get little of anything. It leaks as well: a hidden score still stands in "
      "the denominator. The last line changes the sign of the last token's vector: the first token must not notice.");
  const auto line = [](const std::string& label, const std::string& what, const std::string& right,
                       const std::string& wrong) {
    print_line(fmt::format("   {}{:<34}{:>20}{:>20}", padded(label, 4), what, right, wrong));
  };
  line("", "", "before softmax", "after softmax");
  for (const std::size_t i : shown_places(lesson.tokens.size(), most_rows)) {
    if (i == gap)
      line("..", "", "", "");
    else
      line(lesson.tokens[i], "row sum", number_text(row_sum(before, i)), number_text(row_sum(after, i)));
  }
  line(lesson.tokens[0], "weight of itself", number_text(before(0, 0)), number_text(after(0, 0)));
  line(lesson.tokens[0], "the same, last token changed", number_text(changed_before(0, 0)),
       number_text(changed_after(0, 0)));
}

void print_merge_without_transpose(const Lesson& lesson) {
  Tape<double> tape;
  const Steps steps = attention_steps(tape, lesson);
  const std::size_t time = lesson.tokens.size(), width = lesson.width;
  const Var<double> heads = steps["O_h"], right = merge_heads(heads), wrong = reshape(heads, {time, width});
  std::size_t different = 0;
  for (std::size_t i = 0; i < right.size(); ++i) different += right.data()[i] != wrong.data()[i];

  print_step("Mistake: no transpose", "reshape(O_h, (T, d))", fmt::format("{} → {}", heads.shape(), wrong.shape()));
  print_text(fmt::format(
      "The shape is right, so nothing complains. But in memory head 0 of all tokens comes first: the first row of the "
      "result is head 0 of the first {} tokens, and so on. {} of {} numbers are wrong, and no later step can mend it.",
      std::min(lesson.heads, time), different, right.size()));
  if (lesson.heads > 1 && time >= lesson.heads)
    print_text(fmt::format("Its last number, {}, is that of {} in head 0.", number_text(wrong.data()[width - 1]),
                           lesson.tokens[lesson.heads - 1]));
  if (different == 0) print_text("(With one head, or one token, there is nothing to swap: here the mistake hides.)");
  print_beside({"O, merged with the transpose", matrix_of(right), lesson.tokens},
               {"O, merged without it", matrix_of(wrong), {}});
  const auto output = [&](Var<double> merged) { return matrix_of(matmul(merged, steps["W_O"]) + steps["b_O"]); };
  print_beside({"Y, as it should be", output(right), lesson.tokens}, {"Y, what becomes of it", output(wrong), {}});
}

}  // namespace

void print_mistakes(const Lesson& lesson) {
  print_chapter("Mistakes: what goes wrong, and how it shows");
  print_no_scale(lesson);
  print_mask_after_softmax(lesson);
  print_merge_without_transpose(lesson);
}

}  // namespace examples
