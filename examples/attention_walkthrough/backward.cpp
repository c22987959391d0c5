// The gradients of every step, each computed by its formula, and held against the tape's and against finite
// differences.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "attention_walkthrough/chapters.hpp"
#include "attention_walkthrough/page.hpp"

namespace examples {

using xtape::Tape, xtape::Var;

namespace {

constexpr double nudge = 1e-5;
constexpr double allowed = 1e-6;  // rounding of L, about 1e-14, divided by the nudge; and a margin for large L

/// (L(x + ε) - L(x - ε)) / 2ε for one number of one step.
double finite_difference(Tape<double>& tape, const Lesson& lesson, const std::string& step, std::size_t index) {
  const double above = loss(tape, lesson, {step, index, nudge}), below = loss(tape, lesson, {step, index, -nudge});
  return (above - below) / (2 * nudge);
}

/// Prints gradients, and remembers how far off the worst one was.
class Comparison {
 public:
  Comparison(const Lesson& lesson, const Steps& steps) : lesson_(lesson), steps_(steps) {}

  /// The gradient of a step, as its formula gives it. Of several heads the first is shown.
  void show(const std::string& title, const std::string& formula, const std::string& step, Var<double> by_formula,
            const std::string& explanation) {
    const Var<double> x = steps_[step];
    const Matrix analytic = matrix_of(by_formula);
    Matrix numeric = xt::zeros_like(analytic);
    double difference = 0;
    std::size_t checked = 0;
    // All numbers of what is small; else those that are shown.
    const std::size_t rows = analytic.shape(0), columns = analytic.shape(1), all = 512;
    const auto rows_checked = shown_places(rows, analytic.size() <= all ? rows : most_rows);
    const auto columns_checked = shown_places(columns, analytic.size() <= all ? columns : most_columns_beside);
    for (const std::size_t i : rows_checked)
      for (const std::size_t j : columns_checked) {
        if (i == gap || j == gap) continue;
        numeric(i, j) = finite_difference(second_tape_, lesson_, step, i * columns + j);
        difference = std::max(difference, std::abs(numeric(i, j) - analytic(i, j)));
        ++checked;
      }
    double from_tape = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      from_tape = std::max(from_tape, std::abs(x.grad().flat(i) - by_formula.data()[i]));

    print_step(title, formula, to_string(by_formula.shape()));
    print_text(explanation);
    const bool of_heads = x.shape().rank() == 3, of_tokens = step[0] != 'W' && step[0] != 'b';
    const std::string name = "d" + step + (of_heads ? " of head 0" : "");
    const Labels labels = of_tokens ? lesson_.tokens : rows == 1 ? Labels{""} : numbered(rows);
    print_beside({name, analytic, labels}, {"its finite difference", numeric, {}});
    print_text(fmt::format("largest difference of {} numbers: {:.0e}", checked, difference));
    worst_ = std::max(worst_, difference);
    worst_from_tape_ = std::max(worst_from_tape_, from_tape);
    checked_ += checked;
  }

  bool print_verdict() const {
    const bool right = worst_ < allowed && worst_from_tape_ < allowed;
    fmt::print("\n");
    print_text(
        fmt::format("{}: {} numbers by formula differ from their finite differences by at most {:.0e}, and all "
                    "gradients by formula "
                    "from those that tape.backward() made by {}.",
                    right ? "All agree" : "NOT ALL AGREE", checked_, worst_, at_most(worst_from_tape_)));
    return right;
  }

 private:
  const Lesson& lesson_;
  const Steps& steps_;
  Tape<double> second_tape_;
  double worst_ = 0, worst_from_tape_ = 0;
  std::size_t checked_ = 0;
};

Var<double> swap_rows_and_columns(Var<double> heads) { return transpose(heads, {0, 2, 1}); }
Var<double> column_sums(Var<double> x) { return sum(x, 0); }
Var<double> row_sums(Var<double> x) { return sum(x, -1, /*keep_dims=*/true); }

}  // namespace

bool print_backward(const Lesson& lesson) {
  Tape<double> tape;
  const Steps steps = attention_steps(tape, lesson);
  tape.backward(steps["Y"], lesson.dY);
  const auto guard = tape.no_grad();  // the formulas below are not differentiated in turn
  Comparison comparison(lesson, steps);

  print_chapter("Backward: what each number has to do with the result");
  print_text(fmt::format(
      "Training needs to know how a loss L changes with each number. What follows attention hands back dY, the "
      "derivatives of L with respect to Y (here random, L = Σ dY·Y); from there we walk back, step by step. Two rules "
      "do nearly all. If C = A B, then dA = dC Bᵀ and dB = Aᵀ dC. What was used several times adds up. Beside each "
      "gradient stands its finite difference: one number is moved by ±{:.0e}, everything after it is computed again, "
      "and L is seen to change.",
      nudge));

  const Var<double> dY = tape.input(lesson.dY);
  comparison.show("9. Output projection", "dO = dY W_Oᵀ", "O", matmul(dY, transpose(steps["W_O"])),
                  "Y = O W_O + b_O is a product: its two factors, and the bias, which was added to every row.");
  comparison.show("", "dW_O = Oᵀ dY", "W_O", matmul(transpose(steps["O"]), dY),
                  "A weight has served every token, so its gradient adds up over all of them.");
  comparison.show("", "db_O = Σ_i dY[i]", "b_O", column_sums(dY), "So has the bias.");

  const Var<double> dO = matmul(dY, transpose(steps["W_O"]));
  const Var<double> dO_h = split_heads(dO, lesson.heads);
  comparison.show("8. Merge", "dO_h = columns of dO", "O_h", dO_h,
                  "No number was changed, so none is now: merging turns into splitting.");

  const Var<double> dP = matmul(dO_h, swap_rows_and_columns(steps["V_h"]));
  const Var<double> dV_h = matmul(swap_rows_and_columns(steps["P"]), dO_h);
  comparison.show("7. Weighted sum", "dV_h = Pᵀ dO_h", "V_h", dV_h,
                  "O_h = P V_h. A value hears from everyone who took it, as much as they took.");
  comparison.show(
      "", "dP = dO_h V_hᵀ", "P", dP,
      lesson.causal ? "How far does the value that a weight lets in point along dO? Hidden places have a gradient here "
                      "too; the next step drops it."
                    : "How far does the value that a weight lets in point along dO?");

  const Var<double> dS_masked = steps["P"] * (dP - row_sums(dP * steps["P"]));
  comparison.show(
      "6. Softmax", "dS_masked = P ∘ (dP - Σ_j dP[i, j] P[i, j])", "S_masked", dS_masked,
      "The weights of a row share 1 between them: one grows at the cost of the others. So what counts is by "
      "how much dP is above its weighted mean over the row. Each row of the gradient adds up to 0, and where "
      "P is 0 or 1 hardly anything comes through.");
  comparison.show("5. Mask", lesson.causal ? "dS_scaled = dS_masked where j ≤ i, else 0" : "dS_scaled = dS_masked",
                  "S_scaled", dS_masked,
                  lesson.causal ? "A hidden score has no effect. Its P is 0, so softmax has given it 0 already."
                                : "Nothing is hidden.");
  const Var<double> dS = dS_masked * (1 / std::sqrt(static_cast<double>(lesson.head_width())));
  comparison.show("4. Scale", "dS = dS_scaled / √d_k", "S", dS, "A factor forward is the same factor backward.");

  const Var<double> dQ_h = matmul(dS, steps["K_h"]);
  const Var<double> dK_h = matmul(swap_rows_and_columns(dS), steps["Q_h"]);
  comparison.show("3. Scores", "dQ_h = dS K_h", "Q_h", dQ_h,
                  "S = Q_h K_hᵀ. A query moves towards the keys that it should have listened to more...");
  comparison.show("", "dK_h = dSᵀ Q_h", "K_h", dK_h, "... and a key towards the queries that should have found it.");

  const Var<double> dQ = merge_heads(dQ_h), dK = merge_heads(dK_h), dV = merge_heads(dV_h);
  comparison.show("2. Split", "dQ = dQ_h, side by side", "Q", dQ, "Splitting turns into merging; also for K and V.");
  comparison.show("", "dK = dK_h, side by side", "K", dK, "");
  comparison.show("", "dV = dV_h, side by side", "V", dV, "");

  const Var<double> x = steps["X"];
  comparison.show("1. Projection", "dW_Q = Xᵀ dQ", "W_Q", matmul(transpose(x), dQ),
                  "Three products of the same X: three gradients of weights, three of biases ...");
  comparison.show("", "dW_K = Xᵀ dK", "W_K", matmul(transpose(x), dK), "");
  comparison.show("", "dW_V = Xᵀ dV", "W_V", matmul(transpose(x), dV), "");
  comparison.show("", "db_Q = Σ_i dQ[i]", "b_Q", column_sums(dQ), "");
  comparison.show("", "db_K = Σ_i dK[i]", "b_K", column_sums(dK),
                  "This one is 0: b_K adds the same to all scores of a query, and softmax sees only differences. Each "
                  "row of dS adds up to 0, so nothing is left.");
  comparison.show("", "db_V = Σ_i dV[i]", "b_V", column_sums(dV), "");
  const Var<double> dX =
      matmul(dQ, transpose(steps["W_Q"])) + matmul(dK, transpose(steps["W_K"])) + matmul(dV, transpose(steps["W_V"]));
  comparison.show("0. Input", "dX = dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ", "X", dX,
                  "... and X was used three times, so three contributions add up. This goes to the layer below.");
  return comparison.print_verdict();
}

}  // namespace examples
