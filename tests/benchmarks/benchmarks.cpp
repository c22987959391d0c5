// Benchmarks of xtape alone, by Google Benchmark: ./xtape_benchmarks --benchmark_filter=gemm. XTAPE_THREADS sets the
// number of threads.

#include "benchmarks.hpp"

#include <benchmark/benchmark.h>

#include <cstdlib>

#include <xtape/framework/base/parallel.hpp>
#include "circumstances.hpp"

int main(int argc, char** argv) {
  using namespace xtape::benchmarks;
  if (const char* threads = std::getenv("XTAPE_THREADS")) xtape::set_threads(std::atoi(threads));
  for (const auto& [name, text] : circumstances()) benchmark::AddCustomContext(name, text);
  add_gemm_benchmarks();
  add_kernel_benchmarks();
  add_step_benchmarks();
  add_program_benchmarks();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
