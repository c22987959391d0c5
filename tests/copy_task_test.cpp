// The trainer of small tasks as a user runs it, and the data of its tasks.

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "common/progress.hpp"
#include "common/score.hpp"
#include "common/tasks.hpp"
#include "program.hpp"
#include "support.hpp"

namespace examples::copy_task_test {
namespace {

Finished copy_task(const std::string& flags) { return run_program(XTAPE_COPY_TASK " " + flags); }

std::string file_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

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
  const std::regex line(
      R"(\nstep 200/200 \| loss [0-9.]+ \| accuracy [0-9.]+% \| exact [0-9.]+% \| norm [0-9.]+ \| lr 2\.0e-04 \| [0-9.]+ ms \| [0-9,]+ tok/s\n)");
  EXPECT_TRUE(std::regex_search(run.output, line)) << "a line that people can parse: " << run.output;

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
  const auto task = make_task({.name = "copy", .length = {2, 4}, .letters = 20});
  const Score score = judge(model, tape, *task, Part::evaluation, evaluated, 0);
  EXPECT_EQ(score.exact_match, evaluations[1]["exact_match"]) << "the saved model is the one that was judged";
}

TEST(CopyTask, OnATerminalALineIsRewrittenBetweenEvaluations) {
  const std::string output =
      run_on_a_terminal({XTAPE_COPY_TASK, "--steps", "100", "--width", "16", "--heads", "2", "--layers", "1",
                         "--length", "2..4", "--letters", "20", "--batch", "8", "--evaluate_every", "50"});
  EXPECT_TRUE(std::regex_search(output, std::regex(R"(\rstep 1/100 \| [0-9:]+ left \| loss [0-9.]+ \| norm)")))
      << output;
  EXPECT_TRUE(std::regex_search(output, std::regex(R"([\r\n]step 50/100 \| loss .* tok/s\r\n)"))) << output;
  EXPECT_TRUE(std::regex_search(output, std::regex(R"([\r\n]step 100/100 \| loss .* tok/s\r\n)"))) << output;
}

TEST(CopyTask, TheSameSeedGivesTheSameRunOnAnyNumberOfThreads) {
  const Folder folder;
  const auto losses = [&](const std::string& flags) {
    copy_task("--steps 40 --width 16 --heads 2 --length 2..4 --letters 20 --dropout 0.1 --overwrite --out " +
              folder.path.string() + " " + flags);
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
       std::vector<std::pair<const char*, const char*>>{{"--steps -1", "0 to 10000000"},
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
                                                        {"--learning_rate nan", "nan is no number"},
                                                        {"--colour red", "--colour"},
                                                        {"--digits 4", "--digits"},
                                                        {"--task fly", "there is no task fly"},
                                                        {"--task", "--task"},
                                                        {"--task addition --letters 5", "--letters"},
                                                        {"--task addition --digits 2", "at least 20000"},
                                                        {"--task sort --queries 2", "--queries"},
                                                        {"--task recall --queries 5", "as many pairs"},
                                                        {"--task recall --letters 6", "as many different letters"},
                                                        {"--task induction --length 1..9", "at least 2 letters"},
                                                        {"--task induction --length 27", "need as many in all"}}) {
    const Finished run = copy_task(flags);
    EXPECT_EQ(run.code, 1) << flags;
    EXPECT_TRUE(holds(run.output, allowed)) << flags << ": " << run.output;
  }
}

TEST(CopyTask, HelpShowsTheFlagsAndDefaultsOfTheTask) {
  const Finished copy = copy_task("--help"), addition = copy_task("--task addition --help");
  EXPECT_EQ(copy.code, 0);
  EXPECT_TRUE(holds(copy.output, "=4..12") && holds(copy.output, "--letters") && !holds(copy.output, "--digits"));
  EXPECT_EQ(addition.code, 0);
  EXPECT_TRUE(holds(addition.output, "--digits") && holds(addition.output, "]=128")) << addition.output;
  EXPECT_FALSE(holds(addition.output, "--letters")) << addition.output;
}

TEST(CopyTask, WithNoStepsShowsTheModelAlone) {
  const Finished run = copy_task("--steps 0");
  EXPECT_EQ(run.code, 0);
  EXPECT_TRUE(holds(run.output, "total") && holds(run.output, "105216")) << run.output;
  EXPECT_FALSE(holds(run.output, "step") || holds(run.output, "never met")) << run.output;
}

TEST(CopyTask, IsASmallProgram) {
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "with what finds faults programs are larger";
#endif
  const Folder folder;
  const auto stripped = folder.path / "copy_task";
  ASSERT_EQ(run_program("strip -o " + stripped.string() + " " XTAPE_COPY_TASK).code, 0);
  EXPECT_LT(std::filesystem::file_size(stripped), 2'000'000u) << "beside its shared libraries";
}

// ---- --config

TEST(CopyTask, ARunIsRepeatedFromItsOwnRecord) {
  const Folder folder;
  const std::string first = (folder.path / "first").string(), again = (folder.path / "again").string();
  copy_task(
      "--task recall --steps 20 --width 16 --heads 2 --layers 1 --length 3..5 --queries 2 --batch 8 --seed 7 "
      "--attention_only=false --dropout 0.1 --learning_rate 0.003 --out " +
      first);
  const Finished run = copy_task("--config " + first + "/config.json --out " + again);
  EXPECT_EQ(run.code, 2) << run.output;
  EXPECT_EQ(file_text(again + "/config.json"), file_text(first + "/config.json"));
  EXPECT_EQ(file_text(again + "/model.safetensors"), file_text(first + "/model.safetensors"));
  EXPECT_TRUE(holds(file_text(first + "/config.json"), "\"attention_only\": false"));
  EXPECT_TRUE(holds(file_text(first + "/config.json"), "\"length\": \"3..5\""));
}

TEST(CopyTask, FlagsWinOverTheFileAndTheFileOverTheDefaults) {
  const Folder folder;
  const std::string file = (folder.path / "config.json").string(), out = (folder.path / "run").string();
  std::ofstream(file) << R"({"task": "sort", "steps": 9, "batch": 3, "width": 16, "learning_rate": 1})";
  copy_task("--batch 5 --config " + file + " --letters 20 --out " + out);
  auto config = nlohmann::json::parse(file_text(out + "/config.json"));
  EXPECT_EQ(config["task"], "sort");
  EXPECT_EQ(config["steps"], 9);
  EXPECT_EQ(config["batch"], 5);
  EXPECT_EQ(config["letters"], 20);
  EXPECT_EQ(config["learning_rate"], 1.0);
  EXPECT_EQ(config["heads"], 8) << "the default of sort";

  copy_task("--task reverse --heads 2 --overwrite --config " + file + " --out " + out);
  config = nlohmann::json::parse(file_text(out + "/config.json"));
  EXPECT_EQ(config["task"], "reverse");
  EXPECT_EQ(config["batch"], 3);

  EXPECT_TRUE(holds(copy_task("--help --config " + file).output, "=9")) << "--help shows what the file says";
}

TEST(CopyTask, AConfigurationThatCannotBeFollowedIsRefusedWithFileAndKey) {
  const Folder folder;
  const std::string file = (folder.path / "config.json").string(), out = (folder.path / "run").string();
  const auto refused = [&](const std::string& path, const std::string& sentence) {
    const Finished run = copy_task("--config " + path + " --out " + out);
    EXPECT_EQ(run.code, 1) << sentence;
    EXPECT_TRUE(holds(run.output, path) && holds(run.output, sentence)) << sentence << ": " << run.output;
    EXPECT_FALSE(std::filesystem::exists(out)) << sentence;
  };
  for (const auto& [text, sentence] : std::vector<std::pair<const char*, const char*>>{
           {R"({"colour": 1})", "colour is no setting of the task copy"},
           {R"({"task": "addition", "letters": 5})", "letters is no setting of the task addition"},
           {R"({"task": "fly"})", "task must be one of copy, "},
           {R"({"task": 5})", "task must be one of copy, "},
           {R"({"steps": "200"})", "steps must be a whole number, got \"200\""},
           {R"({"steps": 2.5})", "steps must be a whole number, got 2.5"},
           {R"({"steps": -1})", "steps: Value -1 not in range 0 to 10000000"},
           {R"({"seed": -1})", "seed: Value -1 not in range"},
           {R"({"dropout": 1.5})", "dropout: Value 1.5 not in range"},
           {R"({"dropout": null})", "dropout must be a number, got null"},
           {R"({"length": 5})", "length must be a text, got 5"},
           {R"({"length": "5..3"})", "length: must be two lengths such as 4..12"},
           {R"({"attention_only": 1})", "attention_only must be true or false, got 1"},
           {R"([1])", "must hold a JSON object"},
           {R"({"steps": )", "is no JSON"},
           {"", "is no JSON"}}) {
    std::ofstream(file) << text;
    refused(file, sentence);
  }
  refused((folder.path / "missing.json").string(), "cannot be read");
  refused(folder.path.string(), "cannot be read");
}

// ---- data

const std::vector<TaskOptions> small_tasks = {
    {.name = "copy", .length = {3, 6}},
    {.name = "reverse", .length = {3, 6}},
    {.name = "sort", .length = {3, 6}, .letters = 10},
    {.name = "addition"},
    {.name = "recall", .length = {3, 5}, .letters = 8, .queries = 3},
    {.name = "induction", .length = {2, 8}},
};

/// An example as text: what stands before and after the separator, and which places after it are asked for.
struct Text {
  std::string prompt, answer, asked;
};
Text text_of(const Task& task, const Example& example) {
  const std::string all = task.text(example.tokens);
  const std::size_t cut = all.find(task.text({task.separator()}));
  EXPECT_EQ(std::count(example.asked.begin(), example.asked.begin() + static_cast<std::ptrdiff_t>(cut) + 1, true), 0);
  Text text{all.substr(0, cut), all.substr(cut + 1), ""};
  for (std::size_t i = cut + 1; i < all.size(); ++i) text.asked += example.asked[i] ? '?' : '.';
  return text;
}

std::string reversed(std::string text) { return {text.rbegin(), text.rend()}; }

/// The answer to a prompt, and the places that are asked for, by other means than the tasks have.
std::pair<std::string, std::string> expected(const std::string& task, const Text& text) {
  const std::string& prompt = text.prompt;
  std::string answer, asked;
  if (task == "copy") answer = prompt;
  if (task == "reverse") answer = reversed(prompt);
  if (task == "sort") {
    for (char letter = 'a'; letter <= 'z'; ++letter)
      answer += std::string(static_cast<std::size_t>(std::count(prompt.begin(), prompt.end(), letter)), letter);
  }
  if (task == "addition") {
    const int sum = std::stoi(reversed(prompt.substr(0, 3))) + std::stoi(reversed(prompt.substr(4)));
    answer = reversed(fmt::format("{:04}", sum));
  }
  if (task == "recall") {
    for (std::size_t i = 0; i < text.answer.size(); i += 2) {
      const std::size_t place = prompt.find(text.answer[i]);
      EXPECT_EQ(prompt.rfind(text.answer[i]), place) << "keys are distinct";
      EXPECT_EQ(text.answer.rfind(text.answer[i]), i) << "no key is asked for twice";
      answer += prompt.substr(place, 2);
      asked += ".?";
    }
  }
  if (task == "induction") {
    for (const char letter : prompt) EXPECT_EQ(std::count(prompt.begin(), prompt.end(), letter), 1);
    answer = prompt.substr(prompt.find(text.answer[0]));
    asked = "." + std::string(answer.size() - 1, '?');
  }
  return {answer, asked.empty() ? std::string(answer.size(), '?') : asked};
}

TEST(Tasks, AnswersAreRightAndLengthsAsSet) {
  for (const TaskOptions& options : small_tasks) {
    const auto task = make_task(options);
    std::set<std::size_t> lengths, answer_lengths;
    std::size_t longest = 0;
    for (const Example& example : task->draw(Part::training, 500, 1, 0)) {
      ASSERT_EQ(example.asked.size(), example.tokens.size());
      const Text text = text_of(*task, example);
      EXPECT_EQ(std::pair(text.answer, text.asked), expected(options.name, text)) << options.name << text.prompt;
      lengths.insert(text.prompt.size());
      answer_lengths.insert(text.answer.size());
      longest = std::max(longest, example.tokens.size());
    }
    const std::size_t unit = options.name == "recall" ? 2 : 1;
    const bool fixed = options.name == "addition";
    EXPECT_EQ(*lengths.begin(), fixed ? 7 : unit * options.length.shortest) << options.name;
    EXPECT_EQ(*lengths.rbegin(), fixed ? 7 : unit * options.length.longest) << options.name;
    EXPECT_EQ(task->longest_input() + 1, longest) << options.name;
    if (options.name == "induction") {  // it starts anywhere but at the last letter
      EXPECT_EQ(answer_lengths, (std::set<std::size_t>{2, 3, 4, 5, 6, 7, 8}));
    }
  }
}

TEST(Tasks, PartsNeverMeetAndStreamsRepeat) {
  for (const TaskOptions& options : small_tasks) {
    const auto task = make_task(options);
    const auto prompts = [&](Part part, std::uint64_t seed, std::uint64_t stream) {
      std::set<std::string> found;
      for (const Example& example : task->draw(part, 1000, seed, stream)) {
        found.insert(text_of(*task, example).prompt);
        EXPECT_EQ(task->part_of(example), part);
      }
      return found;
    };
    // All parts of one stream are cut from the same examples, so they would meet if they were not kept apart.
    const auto training = prompts(Part::training, 1, 0), evaluation = prompts(Part::evaluation, 1, 0);
    for (const std::string& prompt : prompts(Part::verdict, 1, 0))
      EXPECT_FALSE(training.count(prompt) || evaluation.count(prompt)) << options.name << " " << prompt;
    for (const std::string& prompt : evaluation) EXPECT_FALSE(training.count(prompt)) << options.name << " " << prompt;
    EXPECT_EQ(prompts(Part::training, 1, 0), training);
    EXPECT_NE(prompts(Part::training, 1, 1), training);
    EXPECT_NE(prompts(Part::training, 2, 0), training);
  }
}

TEST(Tasks, ExamplesThatGiveEachOtherAwayBelongToOnePart) {
  const auto addition = make_task({.name = "addition"});
  for (Example& example : addition->draw(Part::verdict, 200, 0, 0)) {
    std::swap_ranges(example.tokens.begin(), example.tokens.begin() + 3, example.tokens.begin() + 4);
    EXPECT_EQ(addition->part_of(example), Part::verdict) << addition->text(example.tokens);
  }
  for (const char* name : {"recall", "induction"}) {  // other questions about the same list
    const auto task = make_task({.name = name, .length = {5, 8}});
    for (Example& example : task->draw(Part::verdict, 200, 0, 0)) {
      std::reverse(std::find(example.tokens.begin(), example.tokens.end(), task->separator()) + 1,
                   example.tokens.end());
      EXPECT_EQ(task->part_of(example), Part::verdict) << task->text(example.tokens);
    }
  }
}

TEST(Tasks, ABatchAsksForTheAnswerAlone) {
  const auto task = make_task({.name = "copy", .length = {2, 4}});
  const Batch batch = task->batch_of({{{0, 1, 2, 26, 0, 1, 2}, {false, false, false, false, true, true, true}},
                                      {{3, 4, 26, 3, 4}, {false, false, false, false, true}}});
  const xt::xtensor<std::int64_t, 2> tokens = {{0, 1, 2, 26, 0, 1}, {3, 4, 26, 3, 27, 27}};
  const xt::xtensor<std::int64_t, 2> targets = {{-100, -100, -100, 0, 1, 2}, {-100, -100, -100, 4, -100, -100}};
  EXPECT_EQ(batch.tokens, tokens);
  EXPECT_EQ(batch.targets, targets);
  EXPECT_EQ(batch.lengths, (xt::xtensor<std::int64_t, 1>{6, 4}));
}

TEST(Tasks, OfEveryNameExist) {
  for (const std::string& name : task_names) EXPECT_EQ(make_task({.name = name})->name(), name);
  EXPECT_THROW(make_task({.name = "fly"}), xtape::Error);
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
}  // namespace examples::copy_task_test
