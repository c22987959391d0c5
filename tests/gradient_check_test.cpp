// The gradient check of everything as a user runs it.

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "files.hpp"
#include "program.hpp"

namespace examples::gradient_check_test {
namespace {

Finished gradient_check(const std::string& flags) { return run_program(XTAPE_GRADIENT_CHECK " " + flags); }
/// The same on a terminal of its own.
std::string gradient_check_on_a_terminal(const char* only) {
  return run_on_a_terminal({XTAPE_GRADIENT_CHECK, "--only", only});
}

/// The line of the table that belongs to an entry.
std::string line_of(const std::string& entry, const std::string& output) {
  for (const std::string& line : lines_of(output))
    if (holds(line, "  " + entry + " ")) return line;
  return "";
}

TEST(GradientCheck, ListsEveryOpLayerAndModel) {
  const Finished run = gradient_check("--list");
  EXPECT_EQ(run.code, 0);
  std::set<std::string> names;
  for (const std::string& line : lines_of(run.output)) names.insert(line.substr(0, line.find_first_of(" /")));
  for (const char* name : {"add", "matmul", "attention_packed", "cross_entropy", "TransformerLm", "EncoderDecoder"})
    EXPECT_TRUE(names.contains(name)) << name;
  // Every struct of layers/ that is called on Vars.
  static const std::regex layer(R"(^struct (\w+) \{)", std::regex::multiline);
  std::size_t layers = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::filesystem::path(XTAPE_SOURCE_DIR) / "layers")) {
    if (file.path().extension() != ".hpp" || file.path().filename() == "key_value_cache.hpp") continue;
    const std::string text = xtape::read_bytes(file.path());
    if (!holds(text, "operator()")) continue;
    for (std::sregex_iterator match(text.begin(), text.end(), layer), end; match != end; ++match) {
      const std::string name = (*match)[1];
      if (name.ends_with("Options")) continue;
      EXPECT_TRUE(names.contains(name)) << name;
      ++layers;
    }
  }
  EXPECT_GE(layers, 15U);
}

#ifdef __SANITIZE_ADDRESS__
constexpr const char *whole = "--samples 2", *sample = whole;  // memory is used alike for every element
#else
constexpr const char *whole = "", *sample = "--samples 50";
#endif

TEST(GradientCheck, FindsNothingWrong) {
  const Finished run = gradient_check(whole);
  EXPECT_EQ(run.code, 0) << run.output;
  for (const std::string& line : lines_of(gradient_check("--list").output))
    EXPECT_NE(line_of(line.substr(0, line.find(' ')), run.output), "") << line;
}

TEST(GradientCheck, FindsNothingWrongInLayersAndModelsWithFurtherSeeds) {
  for (int seed = 1; seed < 5; ++seed) {
    const Finished run = gradient_check(fmt::format("--only '[A-Z]*' {} --seed {}", sample, seed));
    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_TRUE(holds(run.output, "TransformerLm")) << run.output;
  }
}

TEST(GradientCheck, ChecksWhatAPatternNames) {
  const Finished run = gradient_check("--only '*_norm' --only Linear");
  EXPECT_EQ(run.code, 0) << run.output;
  for (const char* entry : {"layer_norm", "rms_norm", "Linear"})
    EXPECT_TRUE(std::regex_search(line_of(entry, run.output), std::regex(" ok$"))) << entry << "\n" << run.output;
  EXPECT_TRUE(holds(run.output, "3 entries, ")) << run.output;
  EXPECT_TRUE(holds(run.output, ": all ok\n")) << run.output;
  EXPECT_EQ(line_of("Linear/no-bias", run.output), "") << "a pattern names whole names";
}

TEST(GradientCheck, SaysTheSameForTheSameSeedOnAnyNumberOfThreads) {
  const std::string entries = "--only 'TransformerBlock*' --only softmax --only dropout ";
  const std::string first = gradient_check(entries + "--threads 1").output;
  EXPECT_EQ(gradient_check(entries + "--threads 1").output, first);
  EXPECT_EQ(gradient_check(entries + "--threads 4").output, first);
  EXPECT_NE(gradient_check(entries + "--seed 1").output, first);
}

TEST(GradientCheck, ASampleIsSmallerThanTheWhole) {
  EXPECT_TRUE(holds(gradient_check("--only Linear").output, "1 entry, 3 tensors, 54 elements: "));
  const Finished sampled = gradient_check("--only Linear --samples 2");
  EXPECT_EQ(sampled.code, 0);
  EXPECT_TRUE(holds(sampled.output, "1 entry, 3 tensors, 6 elements: ")) << sampled.output;
}

TEST(GradientCheck, IsPlainInAPipeAndAliveOnATerminal) {
  for (const std::string flags :
       {"--only '*Norm'", "--only '*Norm' --only TransformerBlock/pre-norm --break layer_norm", "--list"})
    for (const std::string& line : lines_of(gradient_check(flags).output)) {
      EXPECT_LE(line.size(), 100U) << line;
      EXPECT_FALSE(holds(line, "\033") || holds(line, "\r")) << line;
    }
  const std::string shown = gradient_check_on_a_terminal("*Norm");
  EXPECT_TRUE(holds(shown, "\r  [")) << "a progress bar: " << shown;
  EXPECT_TRUE(holds(shown, "\033[1m")) << "headings: " << shown;
  EXPECT_TRUE(holds(shown, ": all ok")) << shown;
}

// ---- --json

TEST(GradientCheck, WritesItsReportsAsJson) {
  const xtape::TemporaryFolder folder;
  const std::string file = (folder / "report.json").string();
  EXPECT_EQ(gradient_check("--only Linear --only 'relu' --seed 5 --json " + file).code, 0);
  const auto json = nlohmann::json::parse(xtape::read_bytes(file));
  EXPECT_EQ(json["seed"], 5);
  EXPECT_EQ(json["passed"], true);
  ASSERT_EQ(json["entries"].size(), 2U);
  const auto& linear = json["entries"][1];
  EXPECT_EQ(linear["kind"], "layer");
  EXPECT_EQ(linear["name"], "Linear");
  EXPECT_EQ(linear["tensors"], 3);
  std::set<std::string> tensors;
  for (const auto& tensor : linear["checks"][0]["report"]["tensors"]) tensors.insert(tensor["name"]);
  EXPECT_EQ(tensors, (std::set<std::string>{"bias", "input 0", "weight"}));
  EXPECT_EQ(folder.entries(), 1U) << "nothing else is left behind";
}

TEST(GradientCheck, LeavesTheFileAsItWasIfItCannotBeWritten) {
  const xtape::TemporaryFolder folder;
  const Finished run = gradient_check("--only exp --json " + (folder / "missing" / "report.json").string());
  EXPECT_EQ(run.code, 1);
  EXPECT_TRUE(holds(run.output, "cannot be written: No such file or directory")) << run.output;
  const Finished onto_a_folder = gradient_check("--only exp --json " + folder.path().string());
  EXPECT_EQ(onto_a_folder.code, 1);
  EXPECT_TRUE(holds(onto_a_folder.output, "cannot be written: Is a directory")) << onto_a_folder.output;
  EXPECT_EQ(folder.entries(), 0U);
}

// ---- --break

TEST(GradientCheck, ShowsWhatAFailureLooksLike) {
  const Finished run = gradient_check("--only 'TransformerBlock/pre-norm' --break linear");
  EXPECT_EQ(run.code, 1);
  EXPECT_TRUE(holds(run.output, "planted into the backward of linear: 1.01 times the gradient")) << run.output;
  EXPECT_TRUE(holds(line_of("TransformerBlock/pre-norm", run.output), "FAILED: mismatch")) << run.output;
  EXPECT_TRUE(holds(run.output, "1 entry, ") && holds(run.output, ": 1 failed\n")) << run.output;
  EXPECT_TRUE(holds(run.output, "linear2: linear, argument")) << "who is to blame: " << run.output;
}

TEST(GradientCheck, NamesTheElementThatIsWrong) {
  const Finished run = gradient_check("--only Linear --break linear --fault element");
  EXPECT_EQ(run.code, 1);
  EXPECT_TRUE(std::regex_search(run.output, std::regex(R"(input 0 +\(2, 3, 5\)\s+\(1, 0, 0\))"))) << run.output;
}

TEST(GradientCheck, EveryFaultFails) {
  for (const char* fault :
       {"factor", "sign", "element", "overwrite", "upstream", "term", "transposed", "zeros", "nan", "noise", "none"}) {
    const Finished run = gradient_check(std::string("--only Linear --break linear --fault ") + fault);
    EXPECT_EQ(run.code, 1) << fault;
    EXPECT_TRUE(holds(line_of("Linear", run.output), "FAILED: ")) << fault << "\n" << run.output;
  }
}

// ---- bad flags

TEST(GradientCheck, RefusesBadFlagsWithASentence) {
  for (const auto& [flags, sentence] : std::vector<std::pair<const char*, const char*>>{
           {"--only atention", "--only atention names nothing that --list shows; did you mean attention"},
           {"--only norm", "did you mean layer_norm, rms_norm, "},
           {"--only 'Attn*'", "names nothing that --list shows"},
           {"--break lineal", "--break lineal: there is no op of that name; did you mean linear?"},
           {"--break exp --only softmax", "--break exp: the fault was planted nowhere"},
           {"--fault big", "--fault: big not in {factor,"},
           {"--seed -1", "--seed: Value -1 not in range"},
           {"--samples 0", "--samples: Value 0 not in range"},
           {"--threads 0", "--threads: Value 0 not in range"},
           {"--colour red", "--colour"},
           {"--json", "--json"}}) {
    const Finished run = gradient_check(flags);
    EXPECT_EQ(run.code, 1) << flags;
    EXPECT_TRUE(holds(run.output, sentence)) << flags << ": " << run.output;
  }
  EXPECT_EQ(gradient_check("--help").code, 0);
}

}  // namespace
}  // namespace examples::gradient_check_test
