// The program gpt2 as a user runs it, with the tiny model of tests/bridge.

#include "bridge.hpp"
#include "files.hpp"

namespace xtape::gpt2_test {
namespace {

examples::Finished run(const std::string& arguments) { return examples::run_program(XTAPE_GPT2 " " + arguments); }
const std::string model = (bridge_folder / "gpt2.safetensors").string();

TEST(Gpt2Program, ContinuesTokens) {
  const SafetensorsFile file(bridge_folder / "gpt2.io.safetensors");
  const auto tokens = file.read<std::int64_t>("tokens"), continuation = file.read<std::int64_t>("continuation");
  std::string prompt, whole;
  for (int i = 0; i < 7; ++i) prompt += (i > 0 ? " " : "") + std::to_string(tokens[i]);
  whole = prompt;
  for (int i = 0; i < 12; ++i) whole += " " + std::to_string(continuation[i]);
  const auto [code, output] = run(model + " " + prompt + " --heads 4 --max_new_tokens 12");
  EXPECT_EQ(code, 0);
  EXPECT_EQ(output, whole + "\n");
}

TEST(Gpt2Program, ReadsAFolderAndDrawsByItsSeed) {
  const TemporaryFolder folder;
  std::filesystem::copy(model, folder / "model.safetensors");
  write_bytes(folder / "config.json", R"({"n_head": 4})");
  const std::string arguments = folder.path().string() + " 5 28 --temperature 2 --top_k 30 --top_p 0.95 --seed ";
  const auto first = run(arguments + "1");
  EXPECT_EQ(first.code, 0) << first.output;
  EXPECT_EQ(std::count(first.output.begin(), first.output.end(), ' '), 21);
  EXPECT_EQ(run(arguments + "1").output, first.output);
  EXPECT_NE(run(arguments + "2").output, first.output);
}

TEST(Gpt2Program, SaysWhatIsWrong) {
  const auto says = [](const std::string& arguments, std::initializer_list<const char*> parts) {
    const auto [code, output] = run(arguments);
    EXPECT_EQ(code, 1) << arguments;
    for (const char* part : parts) EXPECT_TRUE(examples::holds(output, part)) << arguments << ": " << output;
  };
  says("", {"model is required"});
  says(model, {"tokens is required"});
  says(model + " 5", {"gpt2: [gpt2]", "the number of heads", "has to be given"});
  says(model + " 5 --heads 3", {"width 16 and heads 3"});
  says(model + " 40 --heads 4", {"40"});
  says(model + " 5 --heads 4 --max_new_tokens 25", {"24 positions"});
  says("nothing.safetensors 5", {"nothing.safetensors"});
  says(model + " five --heads 4", {"five"});
}

}  // namespace
}  // namespace xtape::gpt2_test
