// Whole steps: training of the four configurations, attention alone, decoding, the gradient check, files.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <functional>

#include "benchmarks.hpp"
#include "workloads.hpp"

namespace xtape::benchmarks {
namespace {

using Make = std::function<std::unique_ptr<Workload>()>;

/// What else is counted of a run: tokens, bytes, or nothing.
struct Counted {
  const char* name = nullptr;
  double each = 0;
};

void run_workload(benchmark::State& state, const Make& make, Counted counted) {
  const auto workload = make();
  for (int i = 0; i < 2; ++i) workload->run();  // finds out how much memory it takes, then has it in one piece
  const auto began = std::chrono::steady_clock::now();
  for (auto _ : state) workload->run();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const double runs_a_second = static_cast<double>(state.iterations()) / seconds;
  if (workload->gflop() > 0) state.counters["GFLOP/s"] = workload->gflop() * runs_a_second;
  if (counted.name != nullptr) state.counters[counted.name] = counted.each * runs_a_second;
}

void add(const std::string& name, Make make, Counted counted = {}) {
  benchmark::RegisterBenchmark(name.c_str(), run_workload, std::move(make), counted)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

void add_step_benchmarks() {
  for (const Configuration& c : configurations())
    add("training_step/" + c.name, [&c] { return training_step(c); },
        {"tokens/s", static_cast<double>(c.batch * c.time)});
  for (const AttentionSize& s : attention_sizes())
    add(fmt::format("attention_step/{}_{}_{}_{}", s.batch, s.time, s.width, s.heads),
        [&s] { return attention_step(s); }, {"tokens/s", static_cast<double>(s.batch * s.time)});
  const Configuration& medium = configuration("medium");
  add("decoding/medium", [&] { return decoding(medium, 128); }, {"tokens/s", 128});
  add("gradient_check/medium_attention", gradient_check);
  const std::string path = (std::filesystem::temp_directory_path() / "xtape_benchmark.safetensors").string();
  const auto megabytes = static_cast<double>(saving(medium, path)->memory().parameters) / 1e6;
  add("save/medium", [&medium, path] { return saving(medium, path); }, {"MB/s", megabytes});
  add("load/medium", [&medium, path] { return loading(medium, path); }, {"MB/s", megabytes});
}

}  // namespace xtape::benchmarks
