#pragma once
// What is timed as a whole: training steps, attention alone, decoding, matrix products. Each is made once and then run
// many times, by Google Benchmark and by the worker that is timed beside PyTorch.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace xtape::benchmarks {

/// A decoder-only language model and its batch.
struct Configuration {
  std::string name;
  std::size_t batch, time, vocabulary, width, heads, layers;
  /// Of a training step: matrix products forward, and twice that backward. Attention counts in full, as if nothing were
  /// masked.
  double gflop() const;
};
/// Those of the README's tables: toy, baby, medium, larger.
const std::vector<Configuration>& configurations();
const Configuration& configuration(const std::string& name);

/// One layer of attention: x (batch, time, width).
struct AttentionSize {
  std::size_t batch, time, width, heads;
  double gflop() const;  // of forward and backward with the four projections, counted as above
};
const std::vector<AttentionSize>& attention_sizes();

/// Bytes that a step needs by design.
struct MemoryByDesign {
  std::size_t values = 0, saved = 0, intermediate_gradients = 0;
  std::size_t parameters = 0, parameter_gradients = 0, moments = 0;
};

class Workload {
 public:
  virtual ~Workload() = default;
  virtual void run() = 0;
  virtual double gflop() const { return 0; }
  virtual MemoryByDesign memory() const { return {}; }
};

/// Forward, cross-entropy, backward and AdamW of a pre-norm decoder on one batch of random tokens.
std::unique_ptr<Workload> training_step(const Configuration& configuration);
/// Causal self-attention with its projections, forward and backward.
std::unique_ptr<Workload> attention_step(const AttentionSize& size);
/// `new_tokens` further tokens of one prompt of eight, greedily, with a cache.
std::unique_ptr<Workload> decoding(const Configuration& configuration, std::size_t new_tokens);
/// The product of two square matrices on all threads, by the code that the library would choose, or by BLAS: for the
/// whole process from then on.
std::unique_ptr<Workload> matrix_product(std::size_t width);
std::unique_ptr<Workload> blas_product(std::size_t width);
/// The gradient check of an attention layer of the medium configuration, in double.
std::unique_ptr<Workload> gradient_check();
/// A model of the configuration written to a file, or read from one.
std::unique_ptr<Workload> saving(const Configuration& configuration, const std::string& path);
std::unique_ptr<Workload> loading(const Configuration& configuration, const std::string& path);

}  // namespace xtape::benchmarks
