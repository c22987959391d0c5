// The side of xtape in compare_with_pytorch: a process that waits for lines and answers each with a line of JSON.
//
//   prepare train B,T,V,width,heads,layers    makes the workload; nothing is resident of it before
//   prepare attention B,T,width,heads
//   prepare decode B,T,V,width,heads,layers   128 new tokens a run
//   prepare product WIDTH                     of two square matrices; blas_product: by BLAS
//   run N        -> {"seconds": ...}
//   memory       -> bytes: resident before prepare and after it, the most since, and what a step needs by design
//   circumstances, configurations, attention_sizes
//
// It uses no processor while it waits.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include <nlohmann/json.hpp>

#include <xtape/framework/base/error.hpp>
#include <xtape/framework/base/parallel.hpp>
#include "circumstances.hpp"
#include "workloads.hpp"

namespace {

using namespace xtape;
using namespace xtape::benchmarks;
using nlohmann::ordered_json;

/// Bytes of this process: VmRSS is what is resident, VmHWM the most that ever was.
std::size_t resident(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(name + ":", 0) == 0) return std::stoul(line.substr(name.size() + 1)) * 1024;
  return 0;
}

std::vector<std::size_t> read_numbers(const std::string& text, std::size_t count) {
  std::vector<std::size_t> numbers;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');)
    numbers.push_back(static_cast<std::size_t>(std::strtoull(part.c_str(), nullptr, 10)));
  const bool positive = std::all_of(numbers.begin(), numbers.end(), [](std::size_t n) { return n > 0; });
  require(numbers.size() == count && positive, "[prepare] expected {} positive numbers, got {}", count, text);
  return numbers;
}

class Worker {
 public:
  ordered_json answer(const std::string& line) {
    std::istringstream in(line);
    std::string command, kind, size;
    in >> command;
    if (command == "prepare" && in >> kind >> size) return prepare(kind, size);
    if (std::size_t steps = 0; command == "run" && in >> steps) return run(steps);
    if (command == "memory") return memory();
    if (command == "circumstances") {
      ordered_json result;
      for (const auto& [name, text] : circumstances()) result[name] = text;
      return result;
    }
    if (command == "configurations") {
      ordered_json result;
      for (const Configuration& c : configurations())
        result[c.name] = {c.batch, c.time, c.vocabulary, c.width, c.heads, c.layers};
      return result;
    }
    if (command == "attention_sizes") {
      ordered_json result;
      for (const AttentionSize& s : attention_sizes()) result.push_back({s.batch, s.time, s.width, s.heads});
      return result;
    }
    throw Error("expected prepare, run, memory, circumstances, configurations or attention_sizes, got " + line);
  }

 private:
  ordered_json prepare(const std::string& kind, const std::string& size) {
    workload_.reset();
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak counts from here
    before_ = resident("VmRSS");
    if (kind == "train" || kind == "decode") {
      const auto n = read_numbers(size, 6);
      const Configuration c{"", n[0], n[1], n[2], n[3], n[4], n[5]};
      workload_ = kind == "train" ? training_step(c) : decoding(c, 128);
    } else if (kind == "attention") {
      const auto n = read_numbers(size, 4);
      workload_ = attention_step({n[0], n[1], n[2], n[3]});
    } else if (kind == "product" || kind == "blas_product") {
      const std::size_t width = read_numbers(size, 1)[0];
      workload_ = kind == "product" ? matrix_product(width) : blas_product(width);
    } else {
      throw Error("[prepare] expected train, attention, decode, product or blas_product, got " + kind);
    }
    prepared_ = resident("VmRSS");
    return {{"gflop", workload_->gflop()}};
  }
  ordered_json run(std::size_t steps) {
    require(workload_ != nullptr, "[run] expected prepare before");
    const auto began = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < steps; ++i) workload_->run();
    return {{"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()}};
  }
  ordered_json memory() {
    require(workload_ != nullptr, "[memory] expected prepare before");
    const MemoryByDesign m = workload_->memory();
    return {{"before", before_},
            {"prepared", prepared_},
            {"peak", resident("VmHWM")},
            {"design",
             {{"values", m.values},
              {"saved", m.saved},
              {"intermediate_gradients", m.intermediate_gradients},
              {"parameters", m.parameters},
              {"parameter_gradients", m.parameter_gradients},
              {"moments", m.moments}}}};
  }

  std::unique_ptr<Workload> workload_;
  std::size_t before_ = 0, prepared_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string usage = "usage: benchmark_worker --threads N, then commands on standard input\n";
  if (argc != 3 || std::string(argv[1]) != "--threads" || std::atoi(argv[2]) < 1) return std::cerr << usage, 1;
  set_threads(std::atoi(argv[2]));
  Worker worker;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << worker.answer(line).dump() << std::endl;
    } catch (const std::exception& error) {
      std::cout << ordered_json{{"error", error.what()}}.dump() << std::endl;
    }
  }
}
