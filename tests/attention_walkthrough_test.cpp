// The walk through attention as a reader meets it: golden texts, its page, its verdicts, and the width of characters.

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "common/utf8.hpp"
#include "program.hpp"
#include "support.hpp"

namespace examples::attention_walkthrough_test {
namespace {

namespace fs = std::filesystem;
const fs::path golden_folder = fs::path(XTAPE_SOURCE_DIR) / "tests/golden";
const fs::path data_folder = fs::path(XTAPE_SOURCE_DIR) / "examples/data";

Finished walkthrough(const std::string& flags) { return run_program(XTAPE_ATTENTION_WALKTHROUGH " " + flags); }
/// Runs the program without flags on a terminal of its own.
std::string walkthrough_on_a_terminal() { return run_on_a_terminal({XTAPE_ATTENTION_WALKTHROUGH}); }

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(file), {}};
}
// ---- golden texts

/// A line with its numbers cut out.
struct Taken {
  std::string text;
  std::vector<std::string> numbers;
};
Taken take_numbers(const std::string& line) {
  static const std::regex number(R"(-?[0-9]+\.[0-9]+|[0-9]e-[0-9]+)");
  Taken taken;
  auto rest = line.begin();
  for (std::sregex_iterator match(line.begin(), line.end(), number), end; match != end; ++match) {
    taken.text.append(rest, line.begin() + match->position()).append(match->length(), '#');
    taken.numbers.push_back(match->str());
    rest = line.begin() + match->position() + match->length();
  }
  taken.text.append(rest, line.end());
  return taken;
}
/// Decimals may differ in their last digit from machine to machine. Numbers like 8e-11 are the rounding of finite
/// differences: they are only small.
bool same_number(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const double x = std::stod(a), y = std::stod(b);
  if (holds(b, "e-")) return holds(a, "e-") && x < 1e-8 && y < 1e-8;
  return std::abs(x - y) < 1.01 * std::pow(10, -static_cast<double>(b.size() - b.find('.') - 1));
}
/// What is wrong with a line that should be another one; empty if nothing is.
std::string difference(const std::string& line, const std::string& golden) {
  const Taken is = take_numbers(line), should_be = take_numbers(golden);
  if (is.text != should_be.text) return "expected\n" + golden + "\ngot\n" + line;
  for (std::size_t i = 0; i < is.numbers.size(); ++i)
    if (!same_number(is.numbers[i], should_be.numbers[i]))
      return "expected " + should_be.numbers[i] + ", got " + is.numbers[i] + " in\n" + line;
  return {};
}

void expect_golden(const std::string& flags, const std::string& file) {
  const Finished run = walkthrough(flags);
  EXPECT_EQ(run.code, 0);
  const auto lines = lines_of(run.output), golden = lines_of(read_file(golden_folder / file));
  EXPECT_EQ(lines.size(), golden.size());
  for (std::size_t i = 0; i < std::min(lines.size(), golden.size()); ++i)
    ASSERT_EQ(difference(lines[i], golden[i]), "")
        << "line " << i + 1 << " of " << file << "; if the new text is right: attention_walkthrough " << flags
        << " > tests/golden/" << file;
}

TEST(AttentionWalkthrough, SaysWhatTheGoldenTextSays) { expect_golden("", "attention_walkthrough.txt"); }
TEST(AttentionWalkthrough, ReproducesTheFiveSteps) { expect_golden("--steps five", "attention_walkthrough_five.txt"); }
TEST(AttentionWalkthrough, ReproducesTheBatchedSteps) {
  expect_golden("--steps batched", "attention_walkthrough_batched.txt");
}
TEST(AttentionWalkthrough, ReproducesTheSevenStepsAndTheirProperties) {
  expect_golden("--steps seven", "attention_walkthrough_seven.txt");
}

TEST(AttentionWalkthrough, AWrongLineWouldBeSeen) {
  const std::string golden = "   远  0.7985 -0.9125, 7 tokens: 8e-11";
  EXPECT_EQ(difference(golden, golden), "");
  EXPECT_EQ(difference("   远  0.7986 -0.9125, 7 tokens: 9e-10", golden), "");  // the last digit, and rounding
  for (const char* wrong : {"   远  0.7987 -0.9125, 7 tokens: 8e-11", "   远  0.7985  0.9125, 7 tokens: 8e-11",
                            "   远  0.7985 -0.9125, 8 tokens: 8e-11", "   方  0.7985 -0.9125, 7 tokens: 8e-11",
                            "   远  0.7985 -0.9125, 7 tokens: 8e-05", "   远 0.7985 -0.9125, 7 tokens: 8e-11"})
    EXPECT_NE(difference(wrong, golden), "") << wrong;
}

// ---- the page

TEST(AttentionWalkthrough, FitsAHundredColumnsAndIsPlainInAPipe) {
  for (const char* flags :
       {"", "--steps five", "--steps batched", "--steps seven", "--mask none ab", "--heads 1 --width 1 a",
        "--heads 4 --width 16 'naïve 🙂 한글'", "--heads 8 --width 64 0123456789012345678901234567890123456789"}) {
    const Finished run = walkthrough(flags);
    EXPECT_EQ(run.code, 0) << flags;
    EXPECT_FALSE(holds(run.output, "\033")) << flags;
    for (const std::string& line : lines_of(run.output)) {
      EXPECT_LE(display_width(line), 100u) << flags << ": " << line;
      EXPECT_FALSE(line.ends_with(' ')) << flags << ": " << line;
    }
  }
}

TEST(AttentionWalkthrough, HasColoursOnATerminalAndOtherwiseTheSameText) {
  std::string terminal = walkthrough_on_a_terminal();
  EXPECT_TRUE(holds(terminal, "\033[48;5;226m"));
  terminal = std::regex_replace(terminal, std::regex("\033\\[[0-9;]*m|\r"), "");
  const auto lines = lines_of(terminal), piped = lines_of(walkthrough("").output);
  ASSERT_EQ(lines.size(), piped.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) different += lines[i] != piped[i];
  EXPECT_LE(different, 8u);  // the rows of the maps and their legend
}

TEST(AttentionWalkthrough, BadInputGetsASentence) {
  const std::string long_text(41, 'a');
  for (const auto& [flags, sentence] : std::vector<std::pair<std::string, const char*>>{
           {"''", "the text is empty"},
           {"\"$(printf 'ab\\377')\"", "not valid UTF-8: byte 3 is 0xFF"},
           {"\"$(printf 'a\\tb')\"", "no control characters"},
           {"\"$(printf 'a\\033[31mb')\"", "no control characters"},
           {long_text, "at most 40 characters, got 41"},
           {"--width 10 --heads 4", "--width must be a multiple of --heads, got 10 and 4"},
           {"--width 0", "not in range 1 to 128"},
           {"--heads many", "not in range 1 to 128"},
           {"--mask some", "causal"},
           {"--steps six", "five"},
           {"--steps five --data /nowhere", "walkthrough_five_steps.safetensors"},
           {"one two", "two"}}) {
    const Finished run = walkthrough(flags);
    EXPECT_EQ(run.code, 1) << flags;
    EXPECT_TRUE(holds(run.output, sentence)) << flags << ": " << run.output;
  }
}

// ---- the data

TEST(AttentionWalkthrough, ItsDataAreThoseOfTheReferenceFolder) {
  for (const char* name : {"five_steps", "batched", "seven_steps", "seven_steps_causal"}) {
    const std::string file = "walkthrough_" + std::string(name) + ".safetensors";
    EXPECT_TRUE(read_file(data_folder / file) == read_file(fs::path(XTAPE_SOURCE_DIR) / "tests/reference" / file))
        << file;
  }
}

TEST(AttentionWalkthrough, AWrongDigitInTheDataIsSeen) {
  const fs::path folder = fs::temp_directory_path() / ("xtape_walkthrough_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const std::string file = "walkthrough_batched.safetensors";
  std::string bytes = read_file(data_folder / file);
  bytes[bytes.size() - 4] ^= 1;  // a middle byte of the last array's last number
  std::ofstream(folder / file, std::ios::binary) << bytes;
  const Finished run = walkthrough("--steps batched --data " + folder.string());
  fs::remove_all(folder);
  EXPECT_EQ(run.code, 2);
  EXPECT_TRUE(holds(run.output, "WRONG")) << run.output;
  EXPECT_TRUE(holds(run.output, "NOT REPRODUCED")) << run.output;
}

// ---- characters

TEST(Utf8, TextIsCutIntoCharactersWithTheirMarks) {
  EXPECT_EQ(characters("a果🙂"), (std::vector<std::string>{"a", "果", "🙂"}));
  EXPECT_EQ(characters("e\u0301a"), (std::vector<std::string>{"e\u0301", "a"}));
  EXPECT_EQ(characters("\u0301a").size(), 2u);  // nothing to stand on
  EXPECT_TRUE(characters("").empty());
}

TEST(Utf8, WhatIsNotUtf8IsRefusedWithItsPlace) {
  for (const std::string bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                "\xF5\x80\x80\x80", "\xE6\x9E", "\xE6", "\xC3("})
    xtape::expect_message<xtape::Error>([&] { characters("a" + bad); }, {"not valid UTF-8", "byte 2"});
  EXPECT_EQ(characters("\xF4\x8F\xBF\xBF\xED\x9F\xBF").size(), 2u);  // the last ones that are allowed
}

TEST(Utf8, WideCharactersTakeTwoColumns) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("苹果"), 4u);
  EXPECT_EQ(display_width("한글かな"), 8u);
  EXPECT_EQ(display_width("🙂"), 2u);
  EXPECT_EQ(display_width("e\u0301√ᵀ░"), 4u);
  EXPECT_EQ(padded("果", 4), "果  ");
  EXPECT_EQ(padded("abc", 2), "abc");
}

}  // namespace
}  // namespace examples::attention_walkthrough_test
