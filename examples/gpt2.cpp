// Continues tokens with a model in GPT-2's architecture, read from a file of Hugging Face's.

#include <fmt/core.h>

#include <utility>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/layers/generate.hpp>
#include <xtape/layers/pretrained/gpt2.hpp>
#include "common/flags.hpp"

namespace {

using namespace xtape;
using namespace examples;

constexpr const char* description =
    R"(Continues tokens with a model in GPT-2's architecture. Tokens are numbers, here and in what is printed; in Python
tiktoken.get_encoding("gpt2") makes them of text, and text of them. "Hello, my name is" is 15496 11 616 1438 318.
)";

struct Settings {
  std::string model;
  std::vector<std::int64_t> tokens;
  std::size_t heads = 0, new_tokens = 20, top_k = 0;
  double temperature = 0, top_p = 1;
  std::uint64_t seed = 0;
  int threads = xtape::threads();
};

void add_flags(Flags& flags, Settings& s) {
  flags.add("model", s.model, "model.safetensors, or a folder with it and its config.json", {.required = true});
  flags.add("tokens", s.tokens, "what is continued, for instance 15496 11 616 1438 318", {.required = true});
  flags.add("--heads", s.heads, "if neither the file nor a config.json beside it says n_head", {.show_default = false});
  flags.add("--max_new_tokens", s.new_tokens, "how many tokens are added");
  flags.add("--temperature", s.temperature, "0: the most probable token");
  flags.add("--top_k", s.top_k, "draws among the k most probable tokens; 0: all");
  flags.add("--top_p", s.top_p, "draws among the fewest tokens of this probability");
  flags.add("--seed", s.seed, "of all random numbers");
  flags.add("--threads", s.threads, "of the computation", {.allowed = Range{1, 1024}});
}

void run(const Settings& s) {
  set_threads(s.threads);
  const auto model = load_gpt2<float>(s.model, s.heads);
  std::string prompt;
  for (const std::int64_t token : s.tokens) prompt += (prompt.empty() ? "" : " ") + std::to_string(token);
  if (s.new_tokens == 0) fmt::print("{}", prompt);
  const auto print_token = [before = prompt](std::size_t,
                                             std::int64_t token) mutable {  // the prompt comes with the first
    fmt::print("{} {}", std::exchange(before, ""), token);
    std::fflush(stdout);
  };
  generate(model, s.tokens,
           {.new_tokens = s.new_tokens,
            .temperature = s.temperature,
            .top_k = s.top_k,
            .top_p = s.top_p,
            .rng = Rng(s.seed),
            .on_token = print_token});
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  Flags flags(description, "gpt2");
  add_flags(flags, settings);
  try {
    if (const auto exit_code = flags.parse(argc, argv)) return *exit_code;
    run(settings);
    return 0;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "gpt2: {}\n", error.what());
    return 1;
  }
}
