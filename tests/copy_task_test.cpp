// The copy task as a user runs it, and its data.

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "common/copy_score.hpp"
#include "common/copy_sequences.hpp"
#include "common/progress.hpp"
#include "support.hpp"

namespace examples {
namespace {

struct Finished {
  int code;
  std::string output;  // of both streams
};
Finished copy_task(const std::string& flags) {
  FILE* pipe = ::popen((XTAPE_COPY_TASK " " + flags + " 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer;
  while (std::size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), n);
  return {WEXITSTATUS(::pclose(pipe)), output};
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class Folder {
 public:
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("xtape_copy_task_" + std::to_string(::getpid()));
};

TEST(CopyTask, LeavesItsConfigurationItsMetricsAndItsModel) {
  const Folder folder;
  const auto out = folder.path / "new" / "run";
  const Finished run = copy_task(
      "--steps 200 --width 16 --heads 2 --layers 1 --length 2..4 --letters 20 --batch 8 --out " + out.string());
  EXPECT_EQ(run.code, 2) << "so little training is not enough: " << run.output;
  EXPECT_TRUE(holds(run.output, "blocks.0.self_attn.in_proj_weight")) << run.output;
  EXPECT_TRUE(holds(run.output, "of 1000 sequences that it never met")) << run.output;
  EXPECT_TRUE(holds(run.output, "wrong")) << "samples show mistakes: " << run.output;

  const auto config = nlohmann::json::parse(std::ifstream(out / "config.json"));
  EXPECT_EQ(config["steps"], 200);
  EXPECT_EQ(config["length"], "2..4");
  std::ifstream metrics(out / "metrics.jsonl");
  std::vector<nlohmann::json> evaluations;
  for (std::string line; std::getline(metrics, line);) evaluations.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(evaluations.size(), 2u);
  for (const char* key :
       {"step", "loss", "exact_match", "token_accuracy", "learning_rate", "grad_norm", "tokens_per_s", "seconds"})
    EXPECT_TRUE(evaluations[1].contains(key)) << key;
  EXPECT_EQ(evaluations[1]["step"], 200);
  EXPECT_LT(evaluations[1]["loss"], evaluations[0]["loss"]);

  xtape::Rng rng(0);
  xtape::TransformerLm<float> model({.vocabulary = 22, .length = 8, .width = 16, .heads = 2, .layers = 1}, rng);
  auto list = xtape::parameters<float>(model);
  xtape::load_safetensors(out / "model.safetensors", list);
  xtape::Tape<float> tape;
  const CopySequences sequences(20, 2, 4, 0);
  const CopyScore score = judge(model, tape, sequences, Part::evaluation, evaluated);
  EXPECT_EQ(score.exact_match, evaluations[1]["exact_match"]) << "the saved model is the one that was judged";
}

TEST(CopyTask, TheSameSeedGivesTheSameRunOnAnyNumberOfThreads) {
  const Folder folder;
  const auto losses = [&](const std::string& flags) {
    copy_task("--steps 40 --width 16 --heads 2 --length 2..4 --letters 20 --dropout 0.1 --out " + folder.path.string() +
              " " + flags);
    std::ifstream metrics(folder.path / "metrics.jsonl");
    nlohmann::json evaluation = nlohmann::json::parse(metrics);
    return std::pair(evaluation["loss"].get<double>(), evaluation["grad_norm"].get<double>());
  };
  const auto first = losses("--threads 1 --seed 3");
  EXPECT_EQ(losses("--threads 1 --seed 3"), first);
  EXPECT_EQ(losses("--threads 2 --seed 3"), first);
  EXPECT_EQ(losses("--threads 4 --seed 3"), first);
  EXPECT_NE(losses("--threads 1 --seed 4"), first);
}

TEST(CopyTask, FlagsOutOfRangeSayWhatIsAllowed) {
  for (const auto& [flags, allowed] :
       std::vector<std::pair<const char*, const char*>>{{"--steps 0", "1 to 10000000"},
                                                        {"--batch -1", "1 to 65536"},
                                                        {"--letters 27", "2 to 26"},
                                                        {"--dropout 1.5", "0.000000 to 0.990000"},
                                                        {"--target 2", "0.000000 to 1.000000"},
                                                        {"--threads 0", "1 to 1024"},
                                                        {"--length 4-12", "two lengths such as 4..12"},
                                                        {"--length 4..12x", "two lengths such as 4..12"},
                                                        {"--seed -1", "0 to 1000000000"},
                                                        {"--length 5..3", "two lengths such as 4..12"},
                                                        {"--length many", "two lengths such as 4..12"},
                                                        {"--length 4 --letters 2", "at least 20000"},
                                                        {"--width 10 --heads 4", "a multiple of heads"},
                                                        {"--colour red", "--colour"}}) {
    const Finished run = copy_task(flags);
    EXPECT_NE(run.code, 0) << flags;
    EXPECT_NE(run.code, 2) << flags << ": 2 is the verdict's";
    EXPECT_TRUE(holds(run.output, allowed)) << flags << ": " << run.output;
  }
}

TEST(CopySequences, PartsNeverMeetAndStreamsRepeat) {
  const CopySequences sequences(26, 4, 6, 1);
  const auto set_of = [&](Part part) {
    const auto drawn = sequences.draw(part, 2000, 0);
    return std::set<Letters>(drawn.begin(), drawn.end());
  };
  const auto training = set_of(Part::training), evaluation = set_of(Part::evaluation), verdict = set_of(Part::verdict);
  for (const Letters& letters : evaluation) EXPECT_FALSE(training.count(letters) || verdict.count(letters));
  for (const Letters& letters : verdict) EXPECT_FALSE(training.count(letters));
  EXPECT_EQ(sequences.draw(Part::training, 5, 7), sequences.draw(Part::training, 5, 7));
  EXPECT_NE(sequences.draw(Part::training, 5, 7), sequences.draw(Part::training, 5, 8));
}

TEST(CopySequences, ABatchAsksForTheAnswerAlone) {
  const CopySequences sequences(26, 2, 4, 0);
  const CopyBatch batch = CopySequences::batch_of({{0, 1, 2}, {3, 4}}, sequences.separator(), sequences.padding());
  const xt::xtensor<std::int64_t, 2> tokens = {{0, 1, 2, 26, 0, 1}, {3, 4, 26, 3, 27, 27}};
  const xt::xtensor<std::int64_t, 2> targets = {{-100, -100, -100, 0, 1, 2}, {-100, -100, 3, 4, -100, -100}};
  EXPECT_EQ(batch.tokens, tokens);
  EXPECT_EQ(batch.targets, targets);
  EXPECT_EQ(batch.lengths, (xt::xtensor<std::int64_t, 1>{6, 4}));
}

TEST(Progress, NumbersAndDurationsRead) {
  EXPECT_EQ(grouped(7), "7");
  EXPECT_EQ(grouped(1234567), "1,234,567");
  EXPECT_EQ(grouped(123456.4), "123,456");
  EXPECT_EQ(duration_text(7.2), "0:07");
  EXPECT_EQ(duration_text(754), "12:34");
  EXPECT_EQ(duration_text(3723), "1:02:03");
}

}  // namespace
}  // namespace examples
