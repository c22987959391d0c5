// Continues tokens with a model in GPT-2's architecture, read from a file of Hugging Face's.

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <utility>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/layers/generate.hpp>
#include <xtape/layers/pretrained/gpt2.hpp>

namespace {

using namespace xtape;

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

void add_flags(CLI::App& app, Settings& s) {
  app.add_option("model", s.model, "model.safetensors, or a folder with it and its config.json")->required();
  app.add_option("tokens", s.tokens, "what is continued, for instance 15496 11 616 1438 318")->required();
  app.add_option("--heads", s.heads, "if neither the file nor a config.json beside it says n_head");
  app.add_option("--max_new_tokens", s.new_tokens, "how many tokens are added")->capture_default_str();
  app.add_option("--temperature", s.temperature, "0: the most probable token")->capture_default_str();
  app.add_option("--top_k", s.top_k, "draws among the k most probable tokens; 0: all")->capture_default_str();
  app.add_option("--top_p", s.top_p, "draws among the fewest tokens of this probability")->capture_default_str();
  app.add_option("--seed", s.seed, "of all random numbers")->capture_default_str();
  app.add_option("--threads", s.threads, "of the computation")->capture_default_str()->check(CLI::Range(1, 1024));
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
  CLI::App app(description, "gpt2");
  add_flags(app, settings);
  try {
    app.parse(argc, argv);
    run(settings);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "gpt2: {}\n", error.what());
    return 1;
  }
}
