// Row-wise and elementwise kernels: nanoseconds an element, and the rate at which arrays are read and written.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <vector>

#include <xtape/framework/kernels/bias_gelu.hpp>
#include <xtape/framework/kernels/cross_entropy.hpp>
#include <xtape/framework/kernels/layer_norm.hpp>
#include <xtape/framework/kernels/optimizer.hpp>
#include <xtape/framework/kernels/rows.hpp>
#include <xtape/framework/kernels/softmax.hpp>
#include <xtape/framework/kernels/unary.hpp>
#include "benchmarks.hpp"
#include "workloads.hpp"

namespace xtape::benchmarks {
namespace {

using namespace kernels;

/// Rows and columns with all that any of the kernels reads or writes.
struct Arrays {
  std::size_t rows, columns;
  std::vector<float> x, y, dy, dx, gain, bias, dgain, partial;
  std::vector<LayerNormRow<float>> norms;
  std::vector<CrossEntropyRow<float>> losses;
  std::vector<double> loss;
  std::vector<std::int64_t> targets;

  Arrays(std::size_t rows_, std::size_t columns_)
      : rows(rows_),
        columns(columns_),
        x(size()),
        y(size()),
        dy(size(), 0.01f),
        dx(size()),
        gain(columns, 1.0f),
        bias(columns),
        dgain(columns),
        partial(2 * column_sum_pieces(rows) * columns),
        norms(rows),
        losses(rows),
        loss(rows),
        targets(rows) {
    for (std::size_t i = 0; i < size(); ++i) x[i] = static_cast<float>(i * 2654435761u % 4096) / 1024 - 2;
    for (std::size_t row = 0; row < rows; ++row) targets[row] = static_cast<std::int64_t>(row % columns);
  }
  std::size_t size() const { return rows * columns; }
  CrossEntropy<float> cross_entropy() const { return {rows, columns, targets.data(), -100, 0, nullptr}; }
};

struct Kernel {
  std::string name;
  int arrays;  // read and written, each of rows * columns
  std::function<void(Arrays&)> run;
};

void add_unary(std::vector<Kernel>& all, const char* name, Unary kind) {
  const UnaryFunction f{kind};
  all.push_back(
      {fmt::format("{}_forward", name), 2, [f](Arrays& a) { unary_forward(f, a.x.data(), a.y.data(), a.size()); }});
  all.push_back({fmt::format("{}_backward", name), 4, [f](Arrays& a) {
                   unary_backward(f, a.x.data(), a.y.data(), a.dy.data(), a.dx.data(), false, a.size());
                 }});
}

std::vector<Kernel> all_kernels() {
  std::vector<Kernel> all;
  for (const auto& [name, kind] : {std::pair{"exp", Unary::exp}, {"tanh", Unary::tanh}, {"gelu", Unary::gelu}})
    add_unary(all, name, kind);
  all.push_back({"gelu_of_block", 3, [](Arrays& a) {
                   gelu_of_block(GeluForm::exact, a.rows, a.columns, a.columns, a.x.data(), a.y.data(), a.dx.data());
                 }});
  all.push_back({"bias_gelu_backward", 3, [](Arrays& a) {
                   bias_gelu_backward(a.rows, a.columns, a.y.data(), a.dy.data(), a.dx.data(), a.bias.data(), false,
                                      a.partial.data());
                 }});
  all.push_back({"softmax_forward", 2, [](Arrays& a) { softmax_forward(a.rows, a.columns, a.x.data(), a.y.data()); }});
  all.push_back({"softmax_backward", 3,
                 [](Arrays& a) { softmax_backward(a.rows, a.columns, a.y.data(), a.dy.data(), a.dx.data(), false); }});
  all.push_back({"layer_norm_forward", 2, [](Arrays& a) {
                   layer_norm_forward(a.rows, a.columns, a.x.data(), a.gain.data(), a.bias.data(), 1e-5, a.y.data(),
                                      a.norms.data());
                 }});
  all.push_back({"layer_norm_backward", 3, [](Arrays& a) {
                   layer_norm_backward(a.rows, a.columns, a.x.data(), a.gain.data(), a.norms.data(), a.dy.data(),
                                       a.dx.data(), false, a.dgain.data(), false, a.bias.data(), false,
                                       a.partial.data());
                 }});
  all.push_back({"cross_entropy_forward", 1, [](Arrays& a) {
                   cross_entropy_forward(a.cross_entropy(), a.x.data(), a.loss.data(), a.losses.data());
                 }});
  all.push_back({"cross_entropy_backward", 2, [](Arrays& a) {
                   const float dy = 1;
                   cross_entropy_backward(a.cross_entropy(), a.x.data(), a.losses.data(), &dy, false, 1e-3, a.dx.data(),
                                          false);
                 }});
  all.push_back({"adamw", 7, [](Arrays& a) {  // reads gradient, weight and moments, writes all but the gradient
                   adam_update({1e-3, 0.9, 0.999, 1e-8, 0, 1e-2, 0.5, 0.5}, a.size(), a.dy.data(), a.x.data(),
                               a.y.data(), a.dx.data());
                 }});
  all.push_back(
      {"sum_of_squares", 1, [](Arrays& a) { benchmark::DoNotOptimize(sum_of_squares(a.x.data(), a.size())); }});
  return all;
}

void run_kernel(benchmark::State& state, const Kernel& kernel, std::size_t rows, std::size_t columns) {
  Arrays arrays(rows, columns);
  softmax_forward(rows, columns, arrays.x.data(), arrays.y.data());  // what backwards read
  layer_norm_forward(rows, columns, arrays.x.data(), arrays.gain.data(), arrays.bias.data(), 1e-5, arrays.dx.data(),
                     arrays.norms.data());
  cross_entropy_forward(arrays.cross_entropy(), arrays.x.data(), arrays.loss.data(), arrays.losses.data());
  const auto began = std::chrono::steady_clock::now();
  for (auto _ : state) {
    kernel.run(arrays);
    benchmark::ClobberMemory();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const auto elements = static_cast<double>(arrays.size()) * static_cast<double>(state.iterations());
  state.counters["ns/element"] = 1e9 * seconds / elements;
  state.counters["GB/s"] = 1e-9 * elements * kernel.arrays * sizeof(float) / seconds;
}

}  // namespace

void add_kernel_benchmarks() {
  static const std::vector<Kernel> all = all_kernels();
  for (const char* name : {"toy", "medium", "larger"}) {
    const Configuration& c = configuration(name);
    for (const Kernel& kernel : all)
      benchmark::RegisterBenchmark(fmt::format("{}/{}", kernel.name, name).c_str(), run_kernel, kernel,
                                   c.batch * c.time, 4 * c.width)
          ->UseRealTime();
  }
}

}  // namespace xtape::benchmarks
