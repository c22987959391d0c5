#include "circumstances.hpp"

#include <fmt/format.h>

#include <fstream>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/gemm.hpp>

// Of OpenBLAS alone; absent from other BLAS libraries.
extern "C" {
[[gnu::weak]] char* openblas_get_config(void);
[[gnu::weak]] char* openblas_get_corename(void);
[[gnu::weak]] int openblas_get_parallel(void);
}

namespace xtape::benchmarks {
namespace {

/// What follows the name and a colon in a file of the kernel's, such as /proc/cpuinfo.
std::string field(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(name, 0) == 0) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

std::string blas() {
  if (!openblas_get_config || !openblas_get_corename || !openblas_get_parallel) return "not OpenBLAS";
  const char* kinds[] = {"serial", "pthreads", "OpenMP"};
  const int kind = openblas_get_parallel();
  return fmt::format("{}, core {}, {}", openblas_get_config(), openblas_get_corename(),
                     kind >= 0 && kind < 3 ? kinds[kind] : "unknown threads");
}

std::string products() {
  using kernels::GemmCode;
  return kernels::can_run(GemmCode::avx512) ? "own, AVX-512" : kernels::can_run(GemmCode::avx2) ? "own, AVX2" : "BLAS";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> circumstances() {
  return {{"machine", field("/proc/cpuinfo", "model name")},
          {"processors", field("/proc/self/status", "Cpus_allowed_list")},
          {"threads", fmt::format("{}", threads())},
          {"matrix products", products()},
          {"blas", blas()},
          {"compiled", XTAPE_COMPILE_FLAGS}};
}

}  // namespace xtape::benchmarks
