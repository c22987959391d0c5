// Three walk-throughs that were computed with NumPy (data/README.md), computed again and compared digit by digit.

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <xtape/framework/train/safetensors.hpp>

#include "attention_walkthrough/chapters.hpp"
#include "attention_walkthrough/page.hpp"

namespace examples {

using xtape::Tape, xtape::Var;

namespace {

constexpr int decimals = 8;  // as many as NumPy prints

class NumpyFile {
 public:
  NumpyFile(const std::filesystem::path& folder, const std::string& name)
      : file_(folder / ("walkthrough_" + name + ".safetensors")) {}

  Array array(const std::string& name) const {
    Array x = xt::zeros<double>(file_.shape(name));
    const std::vector<double> numbers = file_.read<double>(name);
    std::copy(numbers.begin(), numbers.end(), x.begin());
    return x;
  }
  bool contains(const std::string& name) const { return file_.contains(name); }
  std::size_t heads() const { return std::stoul(file_.metadata().at("num_heads")); }

 private:
  xtape::SafetensorsFile file_;
};

/// The results of one walk-through, computed by the library's ops from the input and the weights of its file.
struct Results {
  Var<double> x, q, k, v, weights, concat, output;
};
Results compute(Tape<double>& tape, const NumpyFile& file, const Array& input, bool causal) {
  const auto project = [&](Var<double> x, const std::string& which) {
    const Var<double> y = matmul(x, tape.input(file.array("w_" + which)));
    return file.contains("b_" + which) ? y + tape.input(file.array("b_" + which)) : y;
  };
  Results r;
  r.x = tape.input(input);
  if (r.x.shape().rank() == 2) r.x = reshape(r.x, {1, r.x.shape()[0], r.x.shape()[1]});  // one sentence: a batch of 1
  r.q = project(r.x, "q"), r.k = project(r.x, "k"), r.v = project(r.x, "v");
  const auto attended = attention_with_weights(r.q, r.k, r.v, file.heads(), {.causal = causal});
  r.weights = attended.weights;
  r.concat = attended.output;
  r.output = project(attended.output, "o");
  return r;
}

double largest_difference_of(const double* a, const double* b, std::size_t count) {
  double largest = 0;
  for (std::size_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

/// The first rows of a matrix with the digits that NumPy prints. Up to eight columns: what does not fit on a line goes
/// on the next; of wider ones the beginning.
void print_array(const std::string& name, const Matrix& x, std::size_t rows) {
  constexpr std::size_t widest_whole = 8, beginning = 7, margin = 3;
  const std::size_t columns = x.shape(1) <= widest_whole ? x.shape(1) : beginning;
  rows = std::min(rows, x.shape(0));
  std::size_t cell = 0;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) cell = std::max(cell, number_text(x(i, j), decimals).size() + 1);
  const std::size_t lines = (columns * cell + page_width - margin - 1) / (page_width - margin);
  const std::size_t in_a_line = (columns + lines - 1) / lines;
  print_text(fmt::format("{} {}{}", name, xtape::Shape(x.shape()),
                         columns < x.shape(1) ? fmt::format(", its first {} columns", columns) : ""));
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t first = 0; first < columns; first += in_a_line) {
      std::string line(first == 0 ? margin : margin + 2, ' ');
      for (std::size_t j = first; j < std::min(first + in_a_line, columns); ++j)
        line += fmt::format("{:>{}}", number_text(x(i, j), decimals), cell);
      print_line(line);
    }
}

/// Compares results with a file, and keeps the verdict over all.
class FileComparison {
 public:
  /// Every printed digit, which is stricter than a tolerance and what a reader would look at.
  void compare(const std::string& name, Var<double> computed, const Array& expected) {
    std::size_t same = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      same += number_text(computed.data()[i], decimals) == number_text(expected.flat(i), decimals);
    const bool all = computed.size() == expected.size() && same == expected.size();
    right_ = right_ && all;
    print_line(fmt::format("   {:<16} {:>5} of {:>5} numbers agree in all {} digits, largest difference {}{}", name,
                           same, expected.size(), decimals,
                           at_most(largest_difference_of(computed.data(), expected.data(), expected.size())),
                           all ? "" : "   WRONG"));
  }
  void property(const std::string& what, bool holds) { report(holds ? "holds" : "DOES NOT HOLD", what, holds); }
  /// What shows that the property could have failed.
  void counter_check(const std::string& what, bool seen) {
    report(seen ? "counter-check" : "COUNTER-CHECK FAILS", what, seen);
  }
  bool print_verdict() const {
    fmt::print("\n");
    print_text(right_ ? "Reproduced." : "NOT REPRODUCED.");
    return right_;
  }

 private:
  void report(const std::string& verdict, const std::string& what, bool right) {
    right_ = right_ && right;
    print_line(fmt::format("   {:<15}{}", verdict, what));
  }
  bool right_ = true;
};

bool five_steps(const std::filesystem::path& folder) {
  const NumpyFile file(folder, "five_steps");
  Tape<double> tape;
  const Results r = compute(tape, file, file.array("x"), false);
  const auto in_heads = [&](Var<double> x) { return split_heads(reshape(x, {7, 8}), file.heads()); };
  const Var<double> q = in_heads(r.q), k = in_heads(r.k), v = in_heads(r.v);

  print_chapter("Five steps: a sentence of 7 tokens, width 8, 2 heads, no bias, no mask");
  print_step("1. Project", "q = x w_q, k = x w_k, v = x w_v", fmt::format("x {}", r.x.shape()));
  print_array("x", matrix_of(r.x), 7);
  print_step("2. Split", "two heads of 4 columns", to_string(q.shape()));
  print_array("q of head 0", matrix_of(q), 7);
  print_array("k of head 0", matrix_of(k), 7);
  print_array("v of head 0", matrix_of(v), 7);
  print_step("3. Weights", "softmax(q kᵀ / √4)", to_string(r.weights.shape()));
  print_array("weights of head 0", matrix_of(r.weights, 0), 7);
  print_array("weights of head 1", matrix_of(r.weights, 1), 7);
  print_step("4. Concatenate", "weights v, heads side by side", to_string(r.concat.shape()));
  print_array("concat", matrix_of(r.concat), 7);
  print_step("5. Project", "output = concat w_o", to_string(r.output.shape()));
  print_array("output", matrix_of(r.output), 7);

  print_step("Compared with NumPy", "");
  FileComparison comparison;
  comparison.compare("q in heads", q, file.array("q_heads"));
  comparison.compare("k in heads", k, file.array("k_heads"));
  comparison.compare("v in heads", v, file.array("v_heads"));
  comparison.compare("weights", r.weights, file.array("weights"));
  comparison.compare("concat", r.concat, file.array("concat"));
  comparison.compare("output", r.output, file.array("output"));
  return comparison.print_verdict();
}

bool batched(const std::filesystem::path& folder) {
  const NumpyFile file(folder, "batched");
  Tape<double> tape;
  const Results r = compute(tape, file, file.array("x"), false);
  print_chapter("Batched: 2 sentences of 4 tokens at once, width 8, 2 heads");
  print_text(
      "All products are done for both sentences together; no sentence sees the other. The weights come back beside the "
      "output, (batch, heads, query, key).");
  print_step("Shapes", "", "");
  fmt::print("   x {}   weights {}   output {}\n", r.x.shape(), r.weights.shape(), r.output.shape());
  print_step("Weights", "weights for head 0, token 0", "of sentence 0");
  print_array("weights[0, 0, 0]", matrix_of(r.weights), 1);
  print_text("Small weight matrices make small scores: nearly a quarter for each of the four keys.");
  print_array("weights[0, 0]", matrix_of(r.weights), 4);
  print_step("Output", "output = concat w_o", to_string(r.output.shape()));
  print_array("output[0]", matrix_of(r.output, 0), 4);
  print_array("output[1]", matrix_of(r.output, 1), 4);

  print_step("Compared with NumPy", "");
  FileComparison comparison;
  comparison.compare("weights", r.weights, file.array("weights"));
  comparison.compare("concat", r.concat, file.array("concat"));
  comparison.compare("output", r.output, file.array("output"));
  return comparison.print_verdict();
}

/// Rows are distributions: each sums to 1. Columns need not be.
void weights_sum_to_one(FileComparison& comparison, const Results& r) {
  const auto away_from_one = [](Var<double> sums) { return max(abs(sums - 1.0)).item(); };
  const double rows = away_from_one(sum(r.weights, -1)), columns = away_from_one(sum(r.weights, -2));
  print_step("Property 1", "each row of the weights sums to 1");
  comparison.property(fmt::format("the rows' sums differ from 1 by {}", at_most(rows)), rows < 1e-12);
  comparison.counter_check(fmt::format("the columns' sums are not 1: they differ by up to {:.4f}", columns),
                           columns > 0.1);
}

/// Output before the last token, of x with its last token replaced, against that of x.
double change_before_the_last(const NumpyFile& file, bool causal) {
  Tape<double> tape;
  const Array x = file.array("x");
  Array changed = x;
  const std::size_t batch = x.shape(0), time = x.shape(1), width = x.shape(2);
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t i = 0; i < width; ++i) changed(b, time - 1, i) *= -1;
  const auto earlier = [&](const Array& input) {
    return slice(compute(tape, file, input, causal).output, 1, 0, time - 1);
  };
  return largest_difference(earlier(x), earlier(changed));
}
void later_tokens_are_not_seen(FileComparison& comparison, const NumpyFile& file) {
  const double with = change_before_the_last(file, true), without = change_before_the_last(file, false);
  print_step("Property 2", "causal mask: no output depends on a later token");
  comparison.property("the last token's sign is changed, and all outputs before it keep every bit", with == 0);
  comparison.counter_check(fmt::format("without the mask they change by up to {:.4f}", without), without > 1e-3);
}

/// Outputs of the tokens in another order, against the outputs in that order.
double change_by_order(const NumpyFile& file, bool causal) {
  Tape<double> tape;
  const std::vector<std::size_t> order = {3, 0, 5, 1, 4, 2};
  const auto reordered = [&](Var<double> x) {
    return index_select(x, 1, xt::adapt(order, std::vector<std::size_t>{order.size()}));
  };
  const Results r = compute(tape, file, file.array("x"), causal);
  const Results other = compute(tape, file, Array(reordered(r.x).value()), causal);
  return largest_difference(other.output, reordered(r.output));
}
void order_does_not_matter(FileComparison& comparison, const NumpyFile& file) {
  const double without = change_by_order(file, false), with = change_by_order(file, true);
  print_step("Property 3", "no mask: outputs follow their tokens into any order");
  comparison.property(fmt::format("in the order 3 0 5 1 4 2 the tokens' outputs differ by {}", at_most(without)),
                      without < 1e-12);
  comparison.counter_check(fmt::format("under a causal mask they change by up to {:.4f}", with), with > 1e-3);
  print_text("This is why a model needs positions: attention alone cannot tell \"a b\" from \"b a\".");
}

bool seven_steps(const std::filesystem::path& folder) {
  const NumpyFile file(folder, "seven_steps"), causal_file(folder, "seven_steps_causal");
  Tape<double> tape;
  const Results r = compute(tape, file, file.array("x"), false), causal = compute(tape, file, file.array("x"), true);
  print_chapter("Seven steps: 2 sentences of 6 tokens, width 64, 8 heads, with biases, without and with a causal mask");
  print_text(
      "Project, split, score, mask, softmax, weighted sum, merge and project: as in the walk-through, with weights "
      "that "
      "multiply on the right.");
  print_step("Weights", "weights[0, 0] without a mask", to_string(r.weights.shape()));
  print_array("weights[0, 0]", matrix_of(r.weights), 6);
  print_step("Weights, causal", "weights[0, 0] under the causal mask", to_string(causal.weights.shape()));
  print_array("weights[0, 0]", matrix_of(causal.weights), 6);
  print_step("Output", "output = concat w_o + b_o", to_string(r.output.shape()));
  print_array("output[0]", matrix_of(r.output), 6);
  print_array("output[0], causal", matrix_of(causal.output), 6);

  print_step("Compared with NumPy", "");
  FileComparison comparison;
  for (const auto& [kind, results, reference] :
       {std::tuple{"", &r, &file}, std::tuple{", causal", &causal, &causal_file}}) {
    comparison.compare(std::string("weights") + kind, results->weights, reference->array("weights"));
    comparison.compare(std::string("concat") + kind, results->concat, reference->array("concat"));
    comparison.compare(std::string("output") + kind, results->output, reference->array("output"));
  }
  weights_sum_to_one(comparison, r);
  later_tokens_are_not_seen(comparison, file);
  order_does_not_matter(comparison, file);
  return comparison.print_verdict();
}

}  // namespace

bool print_numpy_walkthrough(const std::string& which, const std::filesystem::path& folder) {
  return which == "five" ? five_steps(folder) : which == "batched" ? batched(folder) : seven_steps(folder);
}

}  // namespace examples
