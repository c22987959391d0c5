#include "char_lm/sampling.hpp"

#include <algorithm>

#include "common/progress.hpp"
#include "common/utf8.hpp"

namespace examples::char_lm {

using namespace xtape;

namespace {

constexpr std::size_t short_length = 150, short_width = 76;  // characters, columns

/// Writes text into lines of limited width, each behind two blanks, broken between words where there are any.
class Page {
 public:
  void write(char32_t c) {
    if (c == U'\n') return end_line();
    if (is_control(c)) c = U' ';
    const std::string character = to_utf8(c);
    if (display_width(line_ + character) > short_width) break_line();
    line_ += character;
  }
  std::string text() {
    if (!line_.empty()) end_line();
    return text_;
  }

 private:
  void end_line() {
    if (!text_.empty()) text_ += '\n';
    text_ += "  " + line_;
    line_.clear();
  }
  void break_line() {
    const std::size_t blank = line_.find_last_of(' ');
    const std::string rest = blank == line_.npos ? "" : line_.substr(blank + 1);
    line_.resize(blank == line_.npos ? line_.size() : blank);
    end_line();
    line_ = rest;
  }
  std::string text_, line_;
};

}  // namespace

void continue_text(const Model& model, std::size_t block_size, std::vector<std::int64_t> text,
                   const SampleOptions& options, const std::function<void(std::int64_t)>& write) {
  const auto last = [&](std::size_t count) {
    return std::vector<std::int64_t>(text.end() - static_cast<std::ptrdiff_t>(std::min(count, text.size())),
                                     text.end());
  };
  auto cache = model.cache(1, block_size);
  Tape<float> tape;
  tape.set_training(false);
  const auto no_grad = tape.no_grad();
  Rng rng(options.seed);
  std::vector<std::int64_t> unseen = last(block_size);
  for (std::size_t written = 0; written < options.max_new_tokens; ++written) {
    if (cache.length() + unseen.size() > block_size) {
      cache.reset();
      unseen = last((block_size + 1) / 2);
    }
    tape.clear();
    const Var<float> logits = model(tape, tape.integers(unseen.data(), {1, unseen.size()}), cache);
    const std::size_t vocabulary = logits.shape()[2];
    const std::span<const float> next{logits.data() + (unseen.size() - 1) * vocabulary, vocabulary};
    text.push_back(static_cast<std::int64_t>(token_at(token_probabilities(next, options.sampling), rng.uniform())));
    unseen = last(1);
    write(text.back());
  }
}

std::vector<std::int64_t> prompt_tokens(const std::string& prompt, const Vocabulary& vocabulary) {
  if (prompt.empty()) return {vocabulary.find(U'\n').value_or(0)};
  const std::vector<std::int32_t> tokens = vocabulary.encode(code_points(prompt), "the prompt");
  return {tokens.begin(), tokens.end()};
}

std::string short_sample(const Model& model, const Vocabulary& vocabulary, std::size_t block_size, std::uint64_t seed) {
  Page page;
  continue_text(model, block_size, prompt_tokens("", vocabulary), {.max_new_tokens = short_length, .seed = seed},
                [&](std::int64_t token) { page.write(vocabulary[token]); });
  return page.text();
}

}  // namespace examples::char_lm
