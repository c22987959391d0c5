// Matrix products of the four configurations, in the three forms that a linear layer needs, beside OpenBLAS on the same
// shapes in turn.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/kernels/gemm.hpp>
#include "benchmarks.hpp"
#include "blas.hpp"
#include "workloads.hpp"

namespace xtape::benchmarks {
namespace {

using kernels::Transpose;

/// One product C (m, n) = op(A) op(B) with an inner extent k.
struct Product {
  bool transpose_a, transpose_b;
  std::size_t m, n, k;
  std::size_t lda() const { return transpose_a ? m : k; }
  std::size_t ldb() const { return transpose_b ? k : n; }
  double flop() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k); }
};

/// What a linear layer (rows, in) -> (rows, out) with a weight (out, in) computes.
struct Form {
  const char* name;
  Product (*product)(std::size_t rows, std::size_t in, std::size_t out);
};
using Size = std::size_t;
constexpr Form forms[] = {
    {"forward",
     [](Size rows, Size in, Size out) {
       return Product{false, true, rows, out, in};
     }},  // x W^T
    {"backward_x",
     [](Size rows, Size in, Size out) {
       return Product{false, false, rows, in, out};
     }},  // dy W
    {"backward_w",
     [](Size rows, Size in, Size out) {
       return Product{true, false, out, in, rows};
     }},  // dy^T x
};

double seconds_of(auto&& f) {
  const auto began = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

struct Matrices {
  std::vector<float> a, b, c;
  explicit Matrices(const Product& p) : a(p.m * p.k, 0.5f), b(p.k * p.n, 0.25f), c(p.m * p.n) {}
};

/// On one thread, in turn with OpenBLAS. The share is of its rate: above 1 is faster.
void run_gemm(benchmark::State& state, const Product& p) {
  Matrices x(p);
  const auto flag = [](bool transposed) { return transposed ? Transpose::yes : Transpose::no; };
  const auto ours = [&] {
    kernels::gemm(flag(p.transpose_a), flag(p.transpose_b), p.m, p.n, p.k, 1.0f, x.a.data(), p.lda(), x.b.data(),
                  p.ldb(), 0.0f, x.c.data(), p.n);
  };
  const auto theirs = [&] {
    blas_gemm(p.transpose_a, p.transpose_b, p.m, p.n, p.k, x.a.data(), p.lda(), x.b.data(), p.ldb(), x.c.data(), p.n);
  };
  ours();  // the first call tells OpenBLAS to stay on one thread
  theirs();
  double our_seconds = 0, their_seconds = 0;
  for (auto _ : state) {
    const double seconds = seconds_of(ours);
    state.SetIterationTime(seconds);
    our_seconds += seconds;
    their_seconds += seconds_of(theirs);
  }
  state.counters["GFLOP/s"] = 1e-9 * p.flop() * static_cast<double>(state.iterations()) / our_seconds;
  state.counters["of_OpenBLAS"] = their_seconds / our_seconds;
}

/// On all threads, in turn with one.
void run_parallel_gemm(benchmark::State& state, const Product& p) {
  Matrices x(p);
  const auto flag = [](bool transposed) { return transposed ? Transpose::yes : Transpose::no; };
  const auto run = [&](auto&& gemm) {
    gemm(flag(p.transpose_a), flag(p.transpose_b), p.m, p.n, p.k, 1.0f, x.a.data(), p.lda(), x.b.data(), p.ldb(), 0.0f,
         x.c.data(), p.n);
  };
  run(kernels::parallel_gemm<float>);
  double parallel_seconds = 0, serial_seconds = 0;
  for (auto _ : state) {
    const double seconds = seconds_of([&] { run(kernels::parallel_gemm<float>); });
    state.SetIterationTime(seconds);
    parallel_seconds += seconds;
    serial_seconds += seconds_of([&] { run(kernels::gemm<float>); });
  }
  state.counters["GFLOP/s"] = 1e-9 * p.flop() * static_cast<double>(state.iterations()) / parallel_seconds;
  state.counters["of_one_thread"] = serial_seconds / parallel_seconds;
}

}  // namespace

void add_gemm_benchmarks() {
  for (const Configuration& c : configurations()) {
    const std::size_t rows = c.batch * c.time, w = c.width;
    const struct {
      const char* name;
      std::size_t in, out;
    } layers[] = {{"in_proj", w, 3 * w},
                  {"out_proj", w, w},
                  {"linear1", w, 4 * w},
                  {"linear2", 4 * w, w},
                  {"head", w, c.vocabulary}};
    for (const auto& layer : layers)
      for (const Form& form : forms) {
        const Product product = form.product(rows, layer.in, layer.out);
        const std::string name = fmt::format("/{}/{}/{}", c.name, layer.name, form.name);
        benchmark::RegisterBenchmark(("gemm" + name).c_str(), run_gemm, product)->UseManualTime();
        benchmark::RegisterBenchmark(("parallel_gemm" + name).c_str(), run_parallel_gemm, product)->UseManualTime();
      }
  }
}

}  // namespace xtape::benchmarks
