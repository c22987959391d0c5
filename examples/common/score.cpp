#include "common/score.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

namespace examples {
namespace {

constexpr std::size_t shown = 8;

/// Lets the model say what is asked for in examples of one length: the most likely token, every time.
std::vector<Sample> decode_rows(const xtape::TransformerLm<float>& model, xtape::Tape<float>& tape,
                                const std::vector<Example>& examples) {
  const std::size_t rows = examples.size();
  std::vector<Sample> samples;
  for (const Example& example : examples) samples.push_back({example, example.tokens});
  const auto guard = tape.no_grad();
  for (std::size_t time = 1; time < examples[0].tokens.size(); ++time) {
    if (std::none_of(examples.begin(), examples.end(), [&](const Example& e) { return e.asked[time]; })) continue;
    tape.clear();
    auto tokens = xt::xtensor<std::int64_t, 2>::from_shape({rows, time});
    for (std::size_t row = 0; row < rows; ++row) std::copy_n(samples[row].said.begin(), time, &tokens(row, 0));
    const xtape::Var<float> logits = model(tape, tokens);
    const std::size_t classes = logits.shape().back();
    for (std::size_t row = 0; row < rows; ++row) {
      if (!examples[row].asked[time]) continue;
      const float* last = logits.data() + (row * time + time - 1) * classes;
      samples[row].said[time] = std::max_element(last, last + classes) - last;
    }
  }
  return samples;
}

/// The same in groups of rows, so that memory does not grow with their number.
std::vector<Sample> decode(const xtape::TransformerLm<float>& model, xtape::Tape<float>& tape,
                           const std::vector<Example>& examples) {
  constexpr std::size_t group = 128;
  std::vector<Sample> samples;
  for (std::size_t begin = 0; begin < examples.size(); begin += group) {
    const auto first = examples.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = static_cast<std::ptrdiff_t>(std::min(group, examples.size() - begin));
    for (Sample& sample : decode_rows(model, tape, {first, first + count})) samples.push_back(std::move(sample));
  }
  return samples;
}

/// Those of the tokens that are asked for, or that are not.
Tokens select(const Tokens& tokens, const std::vector<bool>& asked, bool wanted) {
  Tokens selected;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (asked[i] == wanted) selected.push_back(tokens[i]);
  return selected;
}

}  // namespace

Score judge(const xtape::TransformerLm<float>& model, xtape::Tape<float>& tape, const Task& task, Part part,
            std::size_t count, std::uint64_t seed) {
  std::map<std::size_t, std::vector<Example>> by_length;
  for (Example& example : task.draw(part, count, seed, 0))
    by_length[example.tokens.size()].push_back(std::move(example));
  tape.set_training(false);
  Score score;
  std::size_t asked = 0, right_tokens = 0;
  std::vector<Sample> wrong;
  for (const auto& [length, examples] : by_length) {
    std::vector<Sample> samples = decode(model, tape, examples);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto& [example, said] = samples[i];
      for (std::size_t t = 0; t < length; ++t) {
        asked += example.asked[t];
        right_tokens += example.asked[t] && said[t] == example.tokens[t];
      }
      const bool right = samples[i].right();
      score.right += right;
      if (!right)
        wrong.push_back(std::move(samples[i]));
      else if (i == 0)
        score.samples.push_back(std::move(samples[i]));
    }
  }
  tape.set_training(true);
  score.samples.insert(score.samples.begin(), wrong.begin(),
                       wrong.begin() + static_cast<std::ptrdiff_t>(std::min(wrong.size(), shown / 2)));
  score.samples.resize(std::min(score.samples.size(), shown));
  score.exact_match = static_cast<double>(score.right) / static_cast<double>(count);
  score.token_accuracy = static_cast<double>(right_tokens) / static_cast<double>(asked);
  return score;
}

std::string verdict_text(const Task& task, const Score& score) {
  return fmt::format("{} {} of {} {} that it never met ({:.1f}%; {}: {:.2f}%)", task.wording().verb, score.right,
                     judged, task.wording().examples, 100 * score.exact_match, task.wording().tokens,
                     100 * score.token_accuracy);
}

void print_samples(const Task& task, const Score& score) {
  std::vector<std::array<std::string, 3>> lines;  // asked, answered, remark
  std::size_t width = 5;
  for (const Sample& sample : score.samples) {
    const auto& [tokens, is_asked] = sample.example;
    Tokens given = select(tokens, is_asked, false);
    if (given.back() == task.separator()) given.pop_back();
    const std::string asked = task.text(given), right = task.text(select(tokens, is_asked, true));
    const std::string remark = sample.right() ? "" : right == asked ? "  wrong" : "  wrong, should be " + right;
    lines.push_back({asked, task.text(select(sample.said, is_asked, true)), remark});
    width = std::max(width, asked.size());
  }
  fmt::print("  {:<{}}  {}\n", "asked", width, "answered");
  for (const auto& [asked, answered, remark] : lines) fmt::print("  {:<{}}  {}{}\n", asked, width, answered, remark);
}

}  // namespace examples
