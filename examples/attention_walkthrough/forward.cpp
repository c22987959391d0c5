// What attention computes, step by step, with one number of each step worked out by hand.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <xtensor/xsort.hpp>
#include <xtensor/xview.hpp>

#include "attention_walkthrough/chapters.hpp"
#include "attention_walkthrough/page.hpp"

namespace examples {

using xtape::Tape, xtape::Var;

namespace {

/// "(7, 8) = (7, 8) (8, 8)"
std::string shapes(Var<double> y, Var<double> a, Var<double> b) {
  return fmt::format("{} = {} {}", y.shape(), a.shape(), b.shape());
}
/// "(7, 8) -> (2, 7, 4)"
std::string change(Var<double> x, Var<double> y) { return fmt::format("{} → {}", x.shape(), y.shape()); }

/// "(0.1)(0.2) + (0.3)(0.4)": what the first `count` numbers of a row of a and a column of b add up. Beyond
/// four products the middle is left out.
std::string products(const Matrix& a, std::size_t row, const Matrix& b, std::size_t column, std::size_t count) {
  std::string text;
  for (const std::size_t i : shown_places(count, 4)) {
    text += text.empty() ? "" : " + ";
    text += i == gap ? "..." : fmt::format("({})({})", number_text(a(row, i)), number_text(b(i, column)));
  }
  return text;
}

/// "e^0.1 + e^0.2" for the first scores of a row.
std::string exponentials(const Matrix& scores, std::size_t row, std::size_t visible) {
  std::string text;
  for (const std::size_t j : shown_places(visible, 4)) {
    text += text.empty() ? "" : " + ";
    text += j == gap ? "..." : "e^" + number_text(scores(row, j));
  }
  return text;
}

std::string head_name(const std::string& name, std::size_t head) { return fmt::format("{} of head {}", name, head); }

/// The first head, and beside it the second if there is one.
void print_heads(const std::string& name, Var<double> x, const Labels& tokens) {
  const Panel first{head_name(name, 0), matrix_of(x, 0), tokens};
  if (x.shape()[0] == 1)
    print_matrix(first);
  else
    print_beside(first, {head_name(name, 1), matrix_of(x, 1), {}});
}

}  // namespace

void print_forward(const Lesson& lesson) {
  Tape<double> tape;
  const Steps steps = attention_steps(tape, lesson);
  const Labels& tokens = lesson.tokens;
  const std::size_t row = std::min<std::size_t>(1, tokens.size() - 1);  // the query that is followed by hand
  const std::size_t visible = lesson.causal ? row + 1 : tokens.size();  // keys that it may look at
  const std::string query = tokens[row], key = tokens[0];
  const auto numbers = [&](const std::string& name) { return matrix_of(steps[name]); };

  print_chapter("Forward: what attention computes");
  print_step("0. Input", "X", to_string(steps["X"].shape()));
  print_text(
      "Each token has a row: the vector of its character, here random numbers, in a trained model learned ones. "
      "Attention lets each row look at the others and take over what it needs from them.");
  print_matrix({"X", numbers("X"), tokens});

  print_step("1. Projection", "Q = X W_Q + b_Q", shapes(steps["Q"], steps["X"], steps["W_Q"]));
  print_text(
      "Three learned matrices make three rows of each row. Query: what am I looking for? Key: what can I be found by? "
      "Value: what do I hand over when I am found?");
  print_matrix({"Q", numbers("Q"), tokens});
  print_text(fmt::format("By hand, Q[{}, 0] = {} + {} = {}", query,
                         products(numbers("X"), row, numbers("W_Q"), 0, lesson.width),
                         number_text(numbers("b_Q")(0, 0)), number_text(numbers("Q")(row, 0))));
  print_beside({"K = X W_K + b_K", numbers("K"), tokens}, {"V = X W_V + b_V", numbers("V"), {}});

  print_step("2. Split", "Q_h = columns of Q", change(steps["Q"], steps["Q_h"]));
  print_text(fmt::format(
      "Each head takes {} columns for itself, so that it can look for something else than the others: head 0 has the "
      "columns from 0 to {}, and so on. No number changes; the same is done with K and V.",
      lesson.head_width(), lesson.head_width() - 1));
  print_heads("Q_h", steps["Q_h"], tokens);

  print_step("3. Scores", "S = Q_h K_hᵀ", shapes(steps["S"], steps["Q_h"], transpose(steps["K_h"], {0, 2, 1})));
  print_text(
      "Row: who asks. Column: who is asked. A score is the product of a query and a key: large if what is looked for "
      "is what is found there. From here on head 0 is shown; the other heads do the same with their own columns.");
  print_matrix({head_name("S", 0), numbers("S"), tokens, tokens});
  print_text(fmt::format("By hand, S[{}, {}] = {} = {}", query, key,
                         products(numbers("Q_h"), row, xt::transpose(numbers("K_h")), 0, lesson.head_width()),
                         number_text(numbers("S")(row, 0))));

  print_step("4. Scale", "S_scaled = S / √d_k", to_string(steps["S_scaled"].shape()));
  print_text(fmt::format(
      "A sum of d_k products grows like √d_k. Divided by it (√{} = {}) the scores keep their size whatever the width "
      "of a head is. What happens otherwise stands at the end, among the mistakes.",
      lesson.head_width(), number_text(std::sqrt(static_cast<double>(lesson.head_width())))));
  print_matrix({head_name("S_scaled", 0), numbers("S_scaled"), tokens, tokens});

  print_step("5. Mask", lesson.causal ? "S_masked = S_scaled where j ≤ i, else -inf" : "S_masked = S_scaled",
             to_string(steps["S_masked"].shape()));
  print_text(lesson.causal
                 ? "Who learns to say the next token must not see it. Key j may be seen by query i if it does not come "
                   "after it; other scores become -inf, and since e^-inf = 0 their weights will be exactly 0."
                 : "No mask: each token may look at all of them. (With --mask causal none looks at later ones.)");
  if (lesson.causal) print_matrix({head_name("S_masked", 0), numbers("S_masked"), tokens, tokens});

  print_step("6. Softmax", "P[i, j] = e^S[i, j] / Σ_k e^S[i, k]", to_string(steps["P"].shape()));
  print_text("Each row becomes weights: none is negative, and together they are 1. How much does i take from j?");
  print_matrix({head_name("P", 0), numbers("P"), tokens, tokens});
  print_text(fmt::format("By hand, P[{}, {}] = e^{} / ({}) = {}", query, key, number_text(numbers("S_masked")(row, 0)),
                         exponentials(numbers("S_masked"), row, visible), number_text(numbers("P")(row, 0))));
  std::vector<Matrix> heads;
  for (std::size_t head = 0; head < lesson.heads; ++head) heads.push_back(matrix_of(steps["P"], head));
  fmt::print("\n");
  const auto last = xt::view(heads[0], tokens.size() - 1);
  const std::size_t most = xt::argmax(last)(), least = xt::argmin(last)();
  print_text(
      fmt::format("All heads as maps, a row for each query. The last one of head 0: {} takes most from {} ({}) and "
                  "least from {} ({}).",
                  tokens.back(), tokens[most], number_text(last(most)), tokens[least], number_text(last(least))));
  print_heat_maps(heads, tokens);

  print_step("7. Weighted sum", "O_h = P V_h", shapes(steps["O_h"], steps["P"], steps["V_h"]));
  print_text("Each token takes a mixture of the values, as much of each as the weights say.");
  print_heads("O_h", steps["O_h"], tokens);
  print_text(fmt::format("By hand, O_h[{}, 0] = {} = {}", query,
                         products(numbers("P"), row, numbers("V_h"), 0, visible), number_text(numbers("O_h")(row, 0))));

  print_step("8. Merge", "O = O_h, heads side by side", change(steps["O_h"], steps["O"]));
  print_text(
      "The heads' columns stand side by side again. The axes must be swapped before the shape is changed: "
      "(h, T, d_k) → (T, h, d_k) → (T, h·d_k).");
  print_matrix({"O", numbers("O"), tokens});

  print_step("9. Output projection", "Y = O W_O + b_O", shapes(steps["Y"], steps["O"], steps["W_O"]));
  print_text("Until here no head knows of another. W_O mixes what they have found.");
  print_matrix({"Y", numbers("Y"), tokens});

  // The library's own op, which does steps 2 to 8 in one.
  const auto with_batch = [&](const std::string& name) {
    return reshape(steps[name], {1, tokens.size(), lesson.width});
  };
  const auto fused = attention_with_weights(with_batch("Q"), with_batch("K"), with_batch("V"), lesson.heads,
                                            {.causal = lesson.causal});
  fmt::print("\n");
  print_text(fmt::format(
      "One op does steps 2 to 8: attention_with_weights(q, k, v, {}). Largest difference from its weights: {}; from "
      "its "
      "output: {}.",
      lesson.causal ? "heads, {.causal = true}" : "heads", at_most(largest_difference(fused.weights, steps["P"])),
      at_most(largest_difference(fused.output, steps["O"]))));
}

}  // namespace examples
