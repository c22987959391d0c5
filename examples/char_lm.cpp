// Trains a small GPT on the characters of a text, by default the King James Bible, and writes more of it.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include <xtape/xtape.hpp>
#include "char_lm/sampling.hpp"
#include "common/progress.hpp"
#include "common/utf8.hpp"

namespace examples::char_lm {
namespace {

using namespace xtape;

/// What the command line asks for.
struct Command {
  Settings settings;
  RunOptions run;
  std::string text, prompt, checkpoint = "latest";
  std::optional<int> threads;  // if they were given: a resumed run may have others
  bool sample = false;
  SampleOptions sampling;
};

void print_text(const std::string& path, const Text& text) {
  const auto number = [](std::size_t n) { return grouped(static_cast<double>(n)); };
  fmt::print("{}: {} characters, {} different ones; {} to train on, {} to validate\n\n", path,
             number(text.tokens.size()), text.vocabulary.size(), number(text.training().size()),
             number(text.validation().size()));
}

void print_whole_loss(const ValidationLoss& loss) {
  fmt::print("validation loss over the whole split {:.4f} ({:.3f} bits per character, {} characters)\n", loss.mean,
             loss.mean / std::log(2.0), grouped(static_cast<double>(loss.predicted)));
}

int run_training(Command& command) {
  nlohmann::ordered_json resumed;
  if (!command.run.resume.empty()) {
    resumed = resumed_config(command.run.resume);
    command.settings = settings_of(resumed);
    if (command.threads) command.settings.threads = *command.threads;
    command.text = text_path_of(resumed);
  }
  const Settings& settings = command.settings;
  check(settings);
  const Text text = read_text(command.text, settings.block_size);
  if (!resumed.is_null()) require_same_text(resumed, text);
  const std::string path = resumed.is_null() ? std::filesystem::canonical(command.text).string() : command.text;
  Model model = make_model(settings, text.vocabulary.size());
  const Training training = make_training(model, settings, text, to_json(settings, path, text));
  fmt::print("{}\n", describe(model));
  print_text(command.text, text);
  if (command.run.out.empty() && resumed.is_null())
    fmt::print(
        "nothing will be kept: with --out FOLDER the model is, and char_lm --sample --out FOLDER then writes\n\n");

  const TrainingResult result = train(training, command.run);
  if (result.stopped) return result.exit_code;
  if (!result.folder.empty()) save_safetensors(result.folder / "model.safetensors", parameters<float>(model));
  fmt::print("\ntrained {} steps in {:.1f} s", result.steps, result.seconds);
  if (result.seconds_a_step > 0) fmt::print(" ({:.2f} ms a step, evaluation apart)", 1000 * result.seconds_a_step);
  fmt::print("\n");
  print_whole_loss(loss_over_all(model, text.validation(), settings.block_size));
  if (!result.folder.empty())
    fmt::print("more text: ./run char_lm --sample --out {} --prompt \"In the beginning\"\n", result.folder.string());
  return 0;
}

int run_sample(const Command& command) {
  require(!command.run.out.empty(), "--sample needs the folder of a run: --out FOLDER, as it was trained with");
  const std::filesystem::path folder = checkpoint_of(command.run.out, command.checkpoint == "best");
  const nlohmann::ordered_json config = resumed_config(folder);
  const Settings settings = settings_of(config);
  const Vocabulary vocabulary = vocabulary_of(config);
  Model model = make_model(settings, vocabulary.size());
  load_safetensors(folder / "model.safetensors", parameters<float>(model));
  set_threads(command.settings.threads);

  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  const auto write = [&](std::int64_t token) {
    char32_t c = vocabulary[token];
    if (terminal && is_control(c) && c != U'\n' && c != U'\t') c = U'\uFFFD';
    fmt::print("{}", to_utf8(c));
    std::fflush(stdout);
  };
  SampleOptions options = command.sampling;
  options.seed = command.settings.seed;
  const auto prompt = prompt_tokens(command.prompt, vocabulary);
  fmt::print("{}", command.prompt);
  continue_text(model, settings.block_size, prompt, options, write);
  fmt::print("\n");
  return 0;
}

void require_no_training_flags(const Flags& flags, const std::vector<std::string>& allowed) {
  for (const std::string& name : flags.given())
    require(std::find(allowed.begin(), allowed.end(), name) != allowed.end(),
            "{} says how to train, which --sample does not do", name);
}

constexpr const char* description =
    R"(Trains a small GPT on the characters of a UTF-8 text; the flags have nanoGPT's names and its defaults for a CPU.

  ./run char_lm --out run                          the King James Bible, a few minutes
  ./run char_lm --text FILE --out run              any text
  ./run char_lm --resume run                       goes on where a run was stopped
  ./run char_lm --sample --out run --prompt "And"  writes
)";

int read_and_run(int argc, char** argv) {
  Command command;
  Flags flags(description, "char_lm");
  flags.add("--text", command.text, "UTF-8 file to learn; its last 10 % are for validation");
  add_flags(flags, command.settings);
  add_run_flags(flags, command.run);
  flags.add_switch("--sample", command.sample, "write text with the model in --out");
  std::vector<std::string> of_sampling = {"--sample", "--out", "--seed", "--threads"};
  const auto sampling = [&](const char* name, auto& value, const char* help, const Allowed& allowed) {
    flags.add(name, value, help, {.allowed = allowed, .needs = "--sample"});
    of_sampling.push_back(name);
  };
  SampleOptions& options = command.sampling;
  sampling("--prompt", command.prompt, "text to continue; empty: a new line", Anything{});
  sampling("--temperature", options.sampling.temperature, "of the softmax; 0: the most probable character",
           Range{0.0, 100.0});
  sampling("--top_k", options.sampling.top_k, "among so many most probable characters; 0: all", Anything{});
  sampling("--top_p", options.sampling.top_p, "among the fewest that reach this probability", Range{1e-9, 1.0});
  sampling("--max_new_tokens", options.max_new_tokens, "characters to write", Anything{});
  sampling("--checkpoint", command.checkpoint, "latest or best, by validation loss", OneOf{{"latest", "best"}});
  if (const auto exit_code = flags.parse(argc, argv)) return *exit_code;
  check_run_flags(flags, command.run);
  if (flags.given("--threads")) command.threads = command.settings.threads;
  if (command.sample) require_no_training_flags(flags, of_sampling);
  return command.sample ? run_sample(command) : run_training(command);
}

}  // namespace
}  // namespace examples::char_lm

int main(int argc, char** argv) {
  try {
    return examples::char_lm::read_and_run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "char_lm: {}\n", error.what());
    return 1;
  }
}
