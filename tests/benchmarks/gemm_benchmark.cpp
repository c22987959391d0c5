// Matrix products of the four configurations, in the three forms that a linear layer needs, beside BLAS on the same
// shapes in turn.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>

#include <xtape/framework/kernels/gemm.hpp>
#include "benchmarks.hpp"
#include "workloads.hpp"

namespace xtape::benchmarks {
namespace {

using namespace kernels;

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

struct Matrices {
  std::vector<float> a, b, c;
  explicit Matrices(const Product& p) : a(p.m * p.k, 0.5f), b(p.k * p.n, 0.25f), c(p.m * p.n) {}
};

Transpose flag(bool transposed) { return transposed ? Transpose::yes : Transpose::no; }

/// In turn with BLAS, and on all threads also in turn with one. Counters above 1 are faster.
void run_gemm(benchmark::State& state, const Product& p, bool parallel) {
  Matrices x(p);
  const auto seconds_by = [&](GemmCode code, bool on_all_threads) {
    use_gemm_code(code);
    const auto gemm = on_all_threads ? parallel_gemm<float> : kernels::gemm<float>;
    const auto began = std::chrono::steady_clock::now();
    gemm(flag(p.transpose_a), flag(p.transpose_b), p.m, p.n, p.k, 1.0f, x.a.data(), p.lda(), x.b.data(), p.ldb(), 0.0f,
         x.c.data(), p.n, nullptr);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  };
  seconds_by(GemmCode::blas, parallel);  // which has to wake up
  double own = 0, blas = 0, serial = 0;
  for (auto _ : state) {
    const double seconds = seconds_by(GemmCode::automatic, parallel);
    state.SetIterationTime(seconds);
    own += seconds;
    blas += seconds_by(GemmCode::blas, parallel);
    if (parallel) serial += seconds_by(GemmCode::automatic, false);
  }
  use_gemm_code(GemmCode::automatic);
  state.counters["GFLOP/s"] = 1e-9 * p.flop() * static_cast<double>(state.iterations()) / own;
  state.counters["of_BLAS"] = blas / own;
  if (parallel) state.counters["of_one_thread"] = serial / own;
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
        for (const bool parallel : {false, true})
          benchmark::RegisterBenchmark(
              fmt::format("{}/{}/{}/{}", parallel ? "parallel_gemm" : "gemm", c.name, layer.name, form.name).c_str(),
              run_gemm, product, parallel)
              ->UseManualTime();
      }
  }
}

}  // namespace xtape::benchmarks
