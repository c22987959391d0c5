// What attention needs: memory of each step, parameters, multiply-adds.

#include <fmt/core.h>

#include <xtape/layers/multi_head_attention.hpp>

#include "attention_walkthrough/chapters.hpp"
#include "attention_walkthrough/page.hpp"
#include "common/progress.hpp"
#include "common/utf8.hpp"

namespace examples {

using xtape::Rng, xtape::Tape;

namespace {

/// What the ledger says of a step.
struct Row {
  const char *step, *formula, *shape;
};
constexpr Row ledger[] = {
    {"X", "given", "(T, d)"},          {"Q", "X W_Q + b_Q", "(T, d)"},  {"K", "X W_K + b_K", "(T, d)"},
    {"V", "X W_V + b_V", "(T, d)"},    {"Q_h", "split", "(h, T, d_k)"}, {"K_h", "split", "(h, T, d_k)"},
    {"V_h", "split", "(h, T, d_k)"},   {"S", "Q_h K_hᵀ", "(h, T, T)"},  {"S_scaled", "S / √d_k", "(h, T, T)"},
    {"S_masked", "mask", "(h, T, T)"}, {"P", "softmax", "(h, T, T)"},   {"O_h", "P V_h", "(h, T, d_k)"},
    {"O", "merge", "(T, d)"},          {"Y", "O W_O + b_O", "(T, d)"}};

std::string number(std::size_t n) { return grouped(static_cast<double>(n)); }

void print_row(const std::string& step, const std::string& formula, const std::string& dimensions,
               const std::string& shape, const std::string& numbers, const std::string& bytes,
               const std::string& multiply_adds) {
  print_line(fmt::format("   {}{}{}{}{:>9}{:>11}{:>15}", padded(step, 11), padded(formula, 15), padded(dimensions, 15),
                         padded(shape, 15), numbers, bytes, multiply_adds));
}

void print_ledger(const Lesson& lesson) {
  Tape<double> tape;
  const Steps steps = attention_steps(tape, lesson);
  const std::size_t all = tape.memory().values.now;
  print_step("Shapes and memory", "8 bytes a number");
  print_row("step", "formula", "dimensions", "shape", "numbers", "bytes", "multiply-adds");
  std::size_t numbers = 0, multiply_adds = 0;
  for (const auto& [step, formula, dimensions] : ledger) {
    const std::size_t size = steps[step].size(), products = steps.multiply_adds(step);
    print_row(step, formula, dimensions, to_string(steps[step].shape()), number(size), number(8 * size),
              products > 0 ? number(products) : "");
    numbers += size;
    multiply_adds += products;
  }
  print_row("sum", "", "", "", number(numbers), number(8 * numbers), number(multiply_adds));

  Tape<double> fused_tape;
  const auto in_batch = [&](const char* name) {
    return reshape(fused_tape.input(steps[name].value(), true), {1, lesson.tokens.size(), lesson.width});
  };
  const auto q = in_batch("Q"), k = in_batch("K"), v = in_batch("V");
  const std::size_t before = fused_tape.memory().values.now + fused_tape.memory().saved.now;
  attention(q, k, v, lesson.heads, {.causal = lesson.causal});
  const std::size_t fused = fused_tape.memory().values.now + fused_tape.memory().saved.now - before;
  std::size_t small_steps = 0;
  for (const char* step : {"Q_h", "K_h", "V_h", "S", "S_scaled", "S_masked", "P", "O_h", "O"})
    small_steps += 8 * steps[step].size();
  print_text(fmt::format(
      "The tape holds {} bytes: also the parameters, products before their bias was added, K_hᵀ, the mask. A step "
      "keeps its result because backward asks for it: dV needs P, dP needs V, dS needs P, dQ needs K, dK needs Q. The "
      "op attention(q, k, v, heads) does the steps from Q_h to O without making them one by one: {} bytes instead of "
      "{}.",
      number(all), number(fused), number(small_steps)));
}

void print_parameters(const Lesson& lesson) {
  std::string sum;
  std::size_t total = 0;
  for (const auto& [name, array] : lesson.given) {
    if (name == "X") continue;
    total += array.size();
    sum += (sum.empty() ? "" : " + ") + fmt::format("{} {}", name, number(array.size()));
  }
  Rng rng(lesson.seed);
  xtape::MultiHeadAttention<double> layer(lesson.width, lesson.heads, rng);
  const std::size_t d = lesson.width;
  print_step("Parameters", "4 (d² + d)");
  print_text(fmt::format("By hand: four matrices (d, d) and four biases (d,): 4 ({} + {}) = {}.", number(d * d),
                         number(d), number(4 * (d * d + d))));
  print_text(fmt::format("By sum: {} = {}.", sum, number(total)));
  print_text(
      fmt::format("The library's layer MultiHeadAttention({}, {}) counts {}. The number of heads is not in it: "
                  "heads share the columns.",
                  d, lesson.heads, number(count(xtape::parameters<double>(layer)))));
}

/// Multiply-adds of the four projections, and of scores and weighted sum.
struct Work {
  std::size_t projections, attention;
};
Work work_of(const Lesson& lesson) {
  Tape<double> tape;
  const auto guard = tape.no_grad();
  const Steps steps = attention_steps(tape, lesson);
  const auto of = [&](const char* step) { return steps.multiply_adds(step); };
  return {of("Q") + of("K") + of("V") + of("Y"), of("S") + of("O_h")};
}

void print_work(const Lesson& lesson) {
  print_step("Multiply-adds", "4·T·d² + 2·T²·d");
  print_text(
      "Counted in the matrix products as they are done, for a text twice as long, and again. The projections grow with "
      "T: twice the text, twice the work. Scores and weighted sum compare each token with each other: O(T²·d), four "
      "times the work. The text's length at which both are equal is T = 2 d.");
  fmt::print("   {:>6}{:>16}{:>9}{:>20}{:>9}{:>14}{:>18}\n", "T", "projections", "ratio", "scores and sum", "ratio",
             "2·T²·d", "weights, bytes");
  std::optional<Work> half;
  std::vector<std::string> tokens = lesson.tokens;
  for (int doubling = 0; doubling < 4; ++doubling) {
    const Lesson longer = lesson_of(tokens, lesson.width, lesson.heads, lesson.causal, lesson.seed);
    const Work work = work_of(longer);
    const auto ratio = [&](std::size_t now, std::size_t then) {
      return fmt::format("× {:.1f}", static_cast<double>(now) / static_cast<double>(then));
    };
    const std::size_t time = tokens.size();
    // fmt counts columns of × and · as one, like a terminal.
    fmt::print("   {:>6}{:>16}{:>9}{:>20}{:>9}{:>14}{:>18}\n", time, number(work.projections),
               half ? ratio(work.projections, half->projections) : "", number(work.attention),
               half ? ratio(work.attention, half->attention) : "", number(2 * time * time * lesson.width),
               number(8 * lesson.heads * time * time));
    half = work;
    tokens.insert(tokens.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(time));
  }
}

}  // namespace

void print_costs(const Lesson& lesson) {
  print_chapter("Costs: what it needs");
  print_ledger(lesson);
  print_parameters(lesson);
  print_work(lesson);
}

}  // namespace examples
