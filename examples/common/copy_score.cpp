#include "common/copy_score.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace examples {
namespace {

constexpr std::size_t shown = 8;

/// Answers to prompts of one length n: n times the most likely next token.
std::vector<Letters> decode_rows(const xtape::TransformerLm<float>& model, xtape::Tape<float>& tape,
                                 const CopySequences& sequences, const std::vector<Letters>& prompts) {
  const std::size_t rows = prompts.size(), n = prompts[0].size();
  std::vector<Letters> text(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    text[row] = prompts[row];
    text[row].push_back(sequences.separator());
  }
  const auto guard = tape.no_grad();
  for (std::size_t time = n + 1; time <= 2 * n; ++time) {
    tape.clear();
    auto tokens = xt::xtensor<std::int64_t, 2>::from_shape({rows, time});
    for (std::size_t row = 0; row < rows; ++row) std::copy(text[row].begin(), text[row].end(), &tokens(row, 0));
    const xtape::Var<float> logits = model(tape, tokens);
    const std::size_t classes = logits.shape().back();
    for (std::size_t row = 0; row < rows; ++row) {
      const float* last = logits.data() + (row * time + time - 1) * classes;
      text[row].push_back(std::max_element(last, last + classes) - last);
    }
  }
  for (Letters& letters : text) letters.erase(letters.begin(), letters.begin() + static_cast<std::ptrdiff_t>(n + 1));
  return text;
}

/// The same in groups of rows, so that memory does not grow with their number.
std::vector<Letters> decode(const xtape::TransformerLm<float>& model, xtape::Tape<float>& tape,
                            const CopySequences& sequences, const std::vector<Letters>& prompts) {
  constexpr std::size_t group = 128;
  std::vector<Letters> answers;
  for (std::size_t begin = 0; begin < prompts.size(); begin += group) {
    const auto first = prompts.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = static_cast<std::ptrdiff_t>(std::min(group, prompts.size() - begin));
    for (Letters& answer : decode_rows(model, tape, sequences, {first, first + count}))
      answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace

CopyScore judge(const xtape::TransformerLm<float>& model, xtape::Tape<float>& tape, const CopySequences& sequences,
                Part part, std::size_t count) {
  std::map<std::size_t, std::vector<Letters>> by_length;
  for (Letters& letters : sequences.draw(part, count, 0)) by_length[letters.size()].push_back(std::move(letters));
  tape.set_training(false);
  CopyScore score;
  std::size_t letters = 0, right_letters = 0;
  std::vector<std::pair<Letters, Letters>> wrong;
  for (const auto& [length, prompts] : by_length) {
    const std::vector<Letters> answers = decode(model, tape, sequences, prompts);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      letters += length;
      for (std::size_t k = 0; k < length; ++k) right_letters += answers[i][k] == prompts[i][k];
      const bool right = answers[i] == prompts[i];
      score.right += right;
      if (!right) wrong.emplace_back(prompts[i], answers[i]);
      if (right && i == 0) score.samples.emplace_back(prompts[i], answers[i]);
    }
  }
  tape.set_training(true);
  score.samples.insert(score.samples.begin(), wrong.begin(),
                       wrong.begin() + static_cast<std::ptrdiff_t>(std::min(wrong.size(), shown / 2)));
  score.samples.resize(std::min(score.samples.size(), shown));
  score.exact_match = static_cast<double>(score.right) / static_cast<double>(count);
  score.token_accuracy = static_cast<double>(right_letters) / static_cast<double>(letters);
  return score;
}

void print_samples(const CopySequences& sequences, const CopyScore& score) {
  std::size_t width = 5;
  for (const auto& [asked, answered] : score.samples) width = std::max(width, asked.size());
  fmt::print("  {:<{}}  {}\n", "asked", width, "answered");
  for (const auto& [asked, answered] : score.samples)
    fmt::print("  {:<{}}  {}{}\n", sequences.text(asked), width, sequences.text(answered),
               asked == answered ? "" : "  wrong");
}

}  // namespace examples
