// Walks through multi-head attention step by step: formulas, shapes and numbers, forward and backward.

#include <fmt/core.h>

#include "attention_walkthrough/chapters.hpp"
#include "attention_walkthrough/page.hpp"
#include "common/flags.hpp"
#include "common/utf8.hpp"

namespace {

using namespace examples;

constexpr std::size_t longest_text = 40;  // characters whose heat map fits the page

struct Settings {
  std::string text = "远方有颗苹果树", mask = "causal", steps = "all", data;
  std::size_t width = 8, heads = 2;
  std::uint64_t seed = 0;
};

void add_flags(Flags& flags, Settings& s) {
  flags.add("text", s.text, "UTF-8, each character a token; at most 40");
  flags.add("--width", s.width, "of a token's vector, a multiple of --heads", {.allowed = Range{1, 128}});
  flags.add("--heads", s.heads, "attention heads", {.allowed = Range{1, 128}});
  flags.add("--mask", s.mask, "causal: no token sees a later one", {.allowed = OneOf{{"causal", "none"}}});
  flags.add("--steps", s.steps,
            "one chapter of the text's walk-through, or one of three that were computed with NumPy: five, batched, "
            "seven",
            {.allowed = OneOf{{"all", "forward", "backward", "costs", "mistakes", "five", "batched", "seven"}}});
  flags.add("--data", s.data, "folder of those three, by default examples/data");
  flags.add("--seed", s.seed, "of all random numbers", {.allowed = Range{0, 1'000'000'000}});
}

/// Blanks shown as a sign that can be seen.
std::vector<std::string> tokens_of(const std::string& text) {
  std::vector<std::string> tokens = characters(text);
  xtape::require(!tokens.empty(), "the text is empty: there is nothing to attend to");
  xtape::require(tokens.size() <= longest_text, "the text may have at most {} characters, got {}", longest_text,
                 tokens.size());
  for (std::string& token : tokens)
    if (token == " ") token = "␣";
  return tokens;
}

bool run(const Settings& s) {
  if (s.steps == "five" || s.steps == "batched" || s.steps == "seven")
    return print_numpy_walkthrough(s.steps, s.data.empty() ? XTAPE_EXAMPLES_DATA : s.data);
  xtape::require(s.width % s.heads == 0, "--width must be a multiple of --heads, got {} and {}", s.width, s.heads);
  const Lesson lesson = lesson_of(tokens_of(s.text), s.width, s.heads, s.mask == "causal", s.seed);
  const auto chapter = [&](const char* name) { return s.steps == "all" || s.steps == name; };

  fmt::print("Multi-head self-attention, step by step\n\n");
  print_text(
      fmt::format("\"{}\": T = {} tokens, width d = {}, h = {} heads, so each head has d_k = d / h = {} columns. Mask: "
                  "{}. Seed: {}.",
                  s.text, lesson.tokens.size(), s.width, s.heads, lesson.head_width(), s.mask, s.seed));
  if (s.steps == "all")
    print_text("Chapters: forward, backward, costs, mistakes; --steps forward shows the first alone.");
  bool right = true;
  if (chapter("forward")) print_forward(lesson);
  if (chapter("backward")) right = print_backward(lesson);
  if (chapter("costs")) print_costs(lesson);
  if (chapter("mistakes")) print_mistakes(lesson);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  Flags flags("Walks through multi-head attention step by step, forward and backward, with all numbers.",
              "attention_walkthrough");
  add_flags(flags, settings);
  try {
    if (const auto exit_code = flags.parse(argc, argv)) return *exit_code;
    return run(settings) ? 0 : 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "attention_walkthrough: {}\n", error.what());
    return 1;
  }
}
