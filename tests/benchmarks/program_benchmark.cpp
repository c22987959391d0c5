// How long the example takes to start: copy_task --steps 0, from its start to its end, with its output thrown away.

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>

#include "benchmarks.hpp"

namespace xtape::benchmarks {

#ifdef XTAPE_COPY_TASK
void add_program_benchmarks() {
  const auto run = [](benchmark::State& state) {
    const std::string command = "exec " XTAPE_COPY_TASK " --steps 0 >/dev/null 2>&1";
    for (auto _ : state) {
      const int status = std::system(command.c_str());
      if (status != 0) {
        state.SkipWithError("copy_task --steps 0 failed");
        break;
      }
    }
  };
  benchmark::RegisterBenchmark("start/copy_task", run)->UseRealTime()->Unit(benchmark::kMillisecond);
}
#else
void add_program_benchmarks() {}
#endif

}  // namespace xtape::benchmarks
