#pragma once
// What the parts of the benchmark program add to it: each registers its benchmarks under names such as gemm/toy/up.

namespace xtape::benchmarks {

void add_gemm_benchmarks();
void add_kernel_benchmarks();
void add_step_benchmarks();
void add_program_benchmarks();

}  // namespace xtape::benchmarks
