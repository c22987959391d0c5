// The trainer of character models as a user runs it.

#include <nlohmann/json.hpp>
#include <regex>

#include "files.hpp"
#include "metrics.hpp"
#include "program.hpp"

namespace examples::char_lm_test {
namespace {

using xtape::read_bytes;
using xtape::TemporaryFolder;
using xtape::write_bytes;

const std::string excerpt = XTAPE_SOURCE_DIR "/tests/data/king_james.txt";
constexpr const char* tiny = " --n_layer 1 --n_head 2 --n_embd 16 --block_size 16 --batch_size 4 ";

Finished char_lm(const std::string& flags) { return run_program(XTAPE_CHAR_LM " " + flags); }
std::string sampled(const std::string& folder, const std::string& flags) {
  const Finished run = char_lm("--sample --out " + folder + " " + flags);
  EXPECT_EQ(run.code, 0) << run.output;
  return run.output;
}
/// Trains for a few steps, on the excerpt unless the flags name a text.
Finished train_briefly(const std::string& flags) {
  const std::string text = holds(flags, "--text") ? "" : " --text " + excerpt;
  return char_lm(flags + text + tiny + (holds(flags, "--max_iters") ? "" : "--max_iters 10"));
}

double whole_loss(const std::string& output) {
  std::smatch found;
  const std::regex line(R"(validation loss over the whole split (\d+\.\d+) \((\d+\.\d+) bits per character)");
  if (!std::regex_search(output, found, line)) return ADD_FAILURE() << output, NAN;
  EXPECT_NEAR(std::stod(found[2]), std::stod(found[1]) / std::log(2.0), 1e-3);
  return std::stod(found[1]);
}

TEST(CharLm, LearnsAndWritesMore) {
  const TemporaryFolder folder;
  const std::string out = (folder / "new/run").string();
  const Finished run = char_lm("--text " + excerpt +
                               " --n_layer 2 --n_head 2 --n_embd 48 --block_size 32 --batch_size 12 --max_iters 200 "
                               "--eval_interval 100 --learning_rate 4e-3 --warmup_iters 20 --threads 2 --out " +
                               out);
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(holds(run.output, "99,959 characters, 60 different ones; 89,963 to train on, 9,996 to validate"))
      << run.output;
  EXPECT_LT(whole_loss(run.output), 2.5) << "the text's unigram entropy is 3.015 nats";
  EXPECT_TRUE(holds(run.output, "9,995 characters)")) << "all but the first are predicted: " << run.output;

  const std::regex line(R"(step (\d+)/200 \| loss \d\.\d+ \| val \d\.\d{3} \| norm [\d.]+ \| lr \d\.\de-0\d \| [\d.]+ )"
                        R"(ms \| [\d,]+ tok/s)");
  const std::vector<std::string> lines = lines_of(run.output);
  std::vector<std::size_t> steps;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::smatch found;
    if (!std::regex_match(lines[i], found, line)) continue;
    steps.push_back(std::stoul(found[1]));
    ASSERT_LT(i + 2, lines.size());
    EXPECT_EQ(lines[i + 1].substr(0, 2), "  ") << "a sample stands below the line: " << run.output;
    EXPECT_LE(lines[i + 1].size(), 78u);
  }
  EXPECT_EQ(steps, (std::vector<std::size_t>{100, 200})) << run.output;

  const auto metrics = metrics_of(out);
  ASSERT_EQ(metrics.size(), 2u);
  for (const char* key : {"step", "loss", "val_loss", "learning_rate", "grad_norm", "tokens_per_s", "seconds"})
    EXPECT_TRUE(metrics[1].contains(key)) << key;
  EXPECT_NEAR(metrics[1]["val_loss"], whole_loss(run.output), 5e-3) << "so short a split is evaluated in whole windows";
  EXPECT_TRUE(std::filesystem::exists(out + "/model.safetensors"));
}

TEST(CharLm, AFullContextBeginsAgainWithItsLastHalf) {
  const TemporaryFolder folder;
  const std::string out = folder.path().string();
  // A rate so high that what the model writes depends on all that it sees.
  ASSERT_EQ(train_briefly("--warmup_iters 0 --learning_rate 1 --out " + out).code, 0);
  for (const std::string prompt : {"In", "And", "The day"}) {
    const std::size_t begin = 17 - 8;  // 16 places are full when the 17th character is to be read
    const std::string text = sampled(out, "--temperature 0 --max_new_tokens 24 --prompt '" + prompt + "'");
    ASSERT_EQ(text.size(), prompt.size() + 24 + 1);
    EXPECT_EQ(sampled(out, "--temperature 0 --max_new_tokens 9 --prompt '" + text.substr(begin, 8) + "'"),
              text.substr(begin, 17) + "\n")
        << text;
  }
}

TEST(CharLm, TheSameSeedWritesTheSameText) {
  const TemporaryFolder folder;
  const std::string out = folder.path().string();
  ASSERT_EQ(train_briefly("--out " + out).code, 0);
  const std::string flags = "--max_new_tokens 100 --prompt 'And ' --seed ";
  const std::string text = sampled(out, flags + "3");
  EXPECT_EQ(text.size(), 4u + 100u + 1u);
  EXPECT_EQ(text.substr(0, 4), "And ");
  EXPECT_EQ(sampled(out, flags + "3 --threads 2"), text);
  EXPECT_NE(sampled(out, flags + "4"), text);
  EXPECT_NE(sampled(out, flags + "3 --top_k 5"), text);
  EXPECT_NE(sampled(out, flags + "3 --top_p 0.1"), text);
  EXPECT_NE(sampled(out, flags + "3 --temperature 0.2"), text);
  EXPECT_EQ(sampled(out + "/checkpoint-10", flags + "3"), text);
  EXPECT_EQ(sampled(out, flags + "3 --checkpoint best"), text);
  EXPECT_EQ(sampled(out, "--max_new_tokens 0"), "\n");
  EXPECT_EQ(sampled(out, "--max_new_tokens 20").size(), 20u + 1u) << "without a prompt";
}

TEST(CharLm, CharactersComeOneByOne) {
  const TemporaryFolder folder;
  const std::string out = folder.path().string();
  ASSERT_EQ(train_briefly("--out " + out).code, 0);
  FILE* pipe = ::popen((XTAPE_CHAR_LM " --sample --max_new_tokens 1500 --out " + out).c_str(), "r");
  std::array<char, 4096> buffer;  // would hold all
  const ssize_t first = ::read(::fileno(pipe), buffer.data(), buffer.size());
  EXPECT_GT(first, 0);
  EXPECT_EQ(first + static_cast<ssize_t>(read_all(::fileno(pipe)).size()), 1501);
  EXPECT_LT(first, 1000);
  ::pclose(pipe);
}

TEST(CharLm, AResumedRunIsTheOneThatWasNeverStopped) {
  const TemporaryFolder folder;
  const std::string whole = (folder / "whole").string(), parts = (folder / "parts").string();
  const std::string flags = "--max_iters 12 --eval_interval 4 --dropout 0.1 --gradient_accumulation_steps 2 --out ";
  const Finished run = train_briefly(flags + whole);
  ASSERT_EQ(run.code, 0) << run.output;
  const Finished stopped = train_briefly(flags + parts + " --stop_after 5");
  EXPECT_EQ(stopped.code, 0) << stopped.output;
  EXPECT_TRUE(holds(stopped.output, "--resume")) << stopped.output;
  EXPECT_FALSE(std::filesystem::exists(parts + "/model.safetensors"));
  const Finished resumed = char_lm("--threads 2 --resume " + parts);
  EXPECT_EQ(resumed.code, 0) << resumed.output;
  EXPECT_EQ(whole_loss(resumed.output), whole_loss(run.output));
  EXPECT_TRUE(read_bytes(parts + "/model.safetensors") == read_bytes(whole + "/model.safetensors"));
  EXPECT_FALSE(read_bytes(whole + "/model.safetensors").empty());
}

TEST(CharLm, ARunGoesOnWithItsOwnTextAlone) {
  const TemporaryFolder folder;
  const std::string out = (folder / "run").string(), text = (folder / "text.txt").string();
  write_bytes(text, read_bytes(excerpt));
  ASSERT_EQ(train_briefly("--stop_after 5 --text " + text + " --out " + out).code, 0);
  const auto expect_refusal = [&](const std::string& part) {
    const Finished run = char_lm("--resume " + out);
    EXPECT_EQ(run.code, 1);
    EXPECT_TRUE(holds(run.output, text) && holds(run.output, part)) << run.output;
  };
  write_bytes(text, read_bytes(excerpt).replace(500, 1, "x"));
  expect_refusal("not the text any more");
  std::filesystem::remove(text);
  expect_refusal("which is gone");
}

TEST(CharLm, AStepSeesTheSameWindowsHoweverItIsCut) {
  const TemporaryFolder folder;
  const std::string one = (folder / "one").string(), two = (folder / "two").string();
  const std::string flags = "--text " + excerpt + " --n_layer 1 --n_head 2 --n_embd 16 --block_size 16 --max_iters 1 ";
  ASSERT_EQ(char_lm(flags + "--batch_size 4 --out " + one).code, 0);
  ASSERT_EQ(char_lm(flags + "--batch_size 2 --gradient_accumulation_steps 2 --out " + two).code, 0);
  EXPECT_NEAR(metrics_of(one)[0]["loss"], metrics_of(two)[0]["loss"], 1e-6);
  EXPECT_NEAR(metrics_of(one)[0]["grad_norm"], metrics_of(two)[0]["grad_norm"], 1e-5);
}

TEST(CharLm, AnyCharactersWillDo) {
  const TemporaryFolder folder;
  const std::string out = (folder / "run").string(), text = (folder / "text.txt").string();
  std::string repeated;
  for (int i = 0; i < 60; ++i) repeated += "ñ\t😀漢 aé";
  write_bytes(text, repeated);
  const Finished run = train_briefly("--text " + text + " --out " + out);
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(holds(run.output, "420 characters, 7 different ones; 378 to train on, 42 to validate")) << run.output;
  const auto config = nlohmann::json::parse(read_bytes(out + "/config.json"));
  EXPECT_EQ(config["vocabulary"], "\t aéñ漢😀") << "in the order of their code points";
  EXPECT_EQ(config["n_embd"], 16);
  EXPECT_EQ(config["bias"], false);
  EXPECT_EQ(sampled(out, "--max_new_tokens 3 --prompt 漢é").substr(0, 5), "漢é");
}

TEST(CharLm, TheModelIsThatOfNanoGpt) {
  const Finished without = train_briefly("--max_iters 1"), with = train_briefly("--max_iters 1 --bias true");
  EXPECT_TRUE(holds(with.output, "blocks.0.linear1.bias") && holds(with.output, "norm.bias")) << with.output;
  EXPECT_FALSE(holds(without.output, "bias") || holds(without.output, "head.weight")) << without.output;
  // Embeddings of 60 characters and 16 places, 12 width^2 weights and three gains.
  EXPECT_TRUE(std::regex_search(without.output, std::regex("total +" + std::to_string(76 * 16 + 12 * 256 + 3 * 16))))
      << without.output;
}

TEST(CharLm, BadInputGetsASentenceBeforeTraining) {
  const TemporaryFolder folder;
  const auto file = [&](const std::string& name, const std::string& content) {
    write_bytes(folder / name, content);
    return (folder / name).string();
  };
  const std::string some = file("some.txt", read_bytes(excerpt).substr(0, 300));
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"", {"no text", "--text FILE", "./run char_lm"}},
      {"--text " + (folder / "none.txt").string(), {"none.txt", "cannot be read", "--text FILE"}},
      {"--text " + folder.path().string(), {"a folder", folder.path().string()}},
      {"--text " + file("empty.txt", ""), {"empty.txt is empty", "--text FILE"}},
      {"--text " + file("one.txt", std::string(500, 'a')), {"one.txt", "nothing but \"a\"", "one symbol"}},
      {"--text " + file("lines.txt", std::string(500, '\n')), {"nothing but U+000A"}},
      {"--text " + file("latin.txt", "caf\xE9 au lait"), {"latin.txt", "not valid UTF-8", "byte 4 is 0xE9", "iconv"}},
      {"--text " + file("cut.txt", std::string(400, 'a') + "\xE6\xBC"), {"byte 401 is 0xE6"}},
      {"--text " + file("short.txt", "a short text") + " --block_size 12", {"12 characters", "--block_size 12"}},
      {"--text " + some + " --block_size 30", {"last 10 %", "30 characters", "at most 29"}},
      {"--text " + some + " --n_embd 30 --n_head 4", {"--n_embd must be a multiple of --n_head, got 30 and 4"}},
      {"--text " + some + " --learning_rate 1e-5", {"--min_lr must not be above --learning_rate"}},
      {"--text " + some + " --max_iters 0", {"--max_iters"}},
      {"--text " + some + " --learning_rate nan", {"--learning_rate"}},
      {"--text " + some + " --block_size 8 --out " + some + "/run", {some + "/run"}},
      {"--text " + some + " --block_size 8 --prompt A", {"--prompt requires --sample"}},
      {"--sample", {"--out FOLDER"}},
      {"--sample --out " + (folder / "nothing").string(), {(folder / "nothing").string()}},
      {"--sample --out " + folder.path().string() + " --n_embd 8", {"--n_embd", "--sample"}},
      {"--resume " + folder.path().string() + " --n_embd 8", {"--n_embd", "--resume"}},
  };
  for (const auto& [flags, parts] : cases) {
    const Finished run = char_lm(flags);
    EXPECT_EQ(run.code, 1) << flags << run.output;
    for (const std::string& part : parts) EXPECT_TRUE(holds(run.output, part)) << flags << "\n" << run.output;
    EXPECT_FALSE(holds(run.output, "step ")) << "nothing was trained: " << run.output;
  }
}

TEST(CharLm, APromptOfOtherCharactersIsRefusedWithTheirNames) {
  const TemporaryFolder folder;
  const std::string out = folder.path().string();
  ASSERT_EQ(train_briefly("--max_iters 1 --out " + out).code, 0);
  for (const auto& [prompt, part] : {std::pair("'caffè ñ è'", "\"è\", \"ñ\","), std::pair("$'a\\tb'", "U+0009"),
                                     std::pair("$'a\\xff'", "byte 2 is 0xFF")}) {
    const Finished run =
        run_program("bash -c \"" XTAPE_CHAR_LM " --sample --out " + out + " --prompt " + prompt + "\"");
    EXPECT_EQ(run.code, 1) << run.output;
    EXPECT_TRUE(holds(run.output, "the prompt") || holds(run.output, "not valid UTF-8")) << run.output;
    EXPECT_TRUE(holds(run.output, part)) << run.output;
  }
}

}  // namespace
}  // namespace examples::char_lm_test
