#include "workloads.hpp"

#include <filesystem>

#include <xtape/framework/kernels/gemm.hpp>
#include <xtape/xtape.hpp>

namespace xtape::benchmarks {
namespace {

double number(std::size_t n) { return static_cast<double>(n); }

template <class T>
std::size_t bytes(const ParameterList<T>& list) {
  std::size_t elements = 0;
  for (const auto& entry : list) elements += entry.parameter.size();
  return elements * sizeof(T);
}

TransformerLm<float> make_model(const Configuration& c, std::size_t length) {
  Rng rng(0);
  return TransformerLm<float>(
      {.vocabulary = c.vocabulary, .length = length, .width = c.width, .heads = c.heads, .layers = c.layers}, rng);
}

MemoryByDesign design_of(const MemoryUse& tape, std::size_t parameters, std::size_t moments) {
  return {.values = tape.values.peak,
          .saved = tape.saved.peak,
          .intermediate_gradients = tape.gradients.peak,
          .parameters = parameters,
          .parameter_gradients = parameters,
          .moments = moments};
}

class TrainingStep : public Workload {
 public:
  explicit TrainingStep(const Configuration& c)
      : configuration_(c),
        model_(make_model(c, c.time)),
        optimizer_(parameters<float>(model_), {.learning_rate = 3e-4}) {
    Rng rng(1);
    for (auto* tokens : {&tokens_, &targets_}) {
      *tokens = xt::xtensor<std::int64_t, 2>::from_shape({c.batch, c.time});
      for (auto& token : *tokens) token = static_cast<std::int64_t>(rng.below(c.vocabulary));
    }
  }
  void run() override {
    tape_.clear();
    const Var<float> loss = cross_entropy(model_(tape_, tokens_), targets_);
    optimizer_.zero_grad();
    tape_.backward(loss);
    optimizer_.step();
  }
  double gflop() const override { return configuration_.gflop(); }
  MemoryByDesign memory() const override {
    auto model = parameters<float>(const_cast<TransformerLm<float>&>(model_));
    return design_of(tape_.memory(), bytes(model), 2 * bytes(model));
  }

 private:
  Configuration configuration_;
  TransformerLm<float> model_;
  AdamW<float> optimizer_;
  Tape<float> tape_;
  xt::xtensor<std::int64_t, 2> tokens_, targets_;
};

class AttentionStep : public Workload {
 public:
  explicit AttentionStep(const AttentionSize& size)
      : size_(size), rng_(0), layer_(size.width, size.heads, rng_), list_(parameters<float>(layer_)) {
    for (auto* array : {&x_, &dy_}) {
      *array = xt::xtensor<float, 3>::from_shape({size.batch, size.time, size.width});
      for (float& element : *array) element = static_cast<float>(rng_.normal());
    }
  }
  void run() override {
    tape_.clear();
    const Var<float> x = tape_.input(x_, true);
    const Var<float> y = layer_(x, {.causal = true});
    zero_grad(list_);
    tape_.backward(y, dy_);
  }
  double gflop() const override { return size_.gflop(); }
  MemoryByDesign memory() const override { return design_of(tape_.memory(), bytes(list_), 0); }

 private:
  AttentionSize size_;
  Rng rng_;
  MultiHeadAttention<float> layer_;
  ParameterList<float> list_;
  Tape<float> tape_;
  xt::xtensor<float, 3> x_, dy_;
};

class Decoding : public Workload {
 public:
  Decoding(const Configuration& c, std::size_t new_tokens) : model_(make_model(c, 256)), new_tokens_(new_tokens) {}
  void run() override { generate(model_, {1, 2, 3, 4, 5, 6, 7, 8}, {.new_tokens = new_tokens_}); }

 private:
  TransformerLm<float> model_;
  std::size_t new_tokens_;
};

class MatrixProduct : public Workload {
 public:
  MatrixProduct(std::size_t width, kernels::GemmCode code)
      : n_(width), a_(n_ * n_, 0.5f), b_(n_ * n_, 0.25f), c_(n_ * n_) {
    kernels::use_gemm_code(code);
  }
  void run() override {
    constexpr auto as_it_is = kernels::Transpose::no;
    kernels::parallel_gemm(as_it_is, as_it_is, n_, n_, n_, 1.0f, a_.data(), n_, b_.data(), n_, 0.0f, c_.data(), n_);
  }
  double gflop() const override { return 2e-9 * number(n_) * number(n_) * number(n_); }

 private:
  std::size_t n_;
  std::vector<float> a_, b_, c_;
};

class GradientCheck : public Workload {
 public:
  GradientCheck() : rng_(0), layer_(configuration("medium").width, configuration("medium").heads, rng_) {}
  void run() override {
    const auto report = gradcheck(layer_, {{1, 16, configuration("medium").width}});
    require(static_cast<bool>(report), "[gradient_check] expected right gradients, got {}", to_string(report));
  }

 private:
  Rng rng_;
  MultiHeadAttention<double> layer_;
};

class FileOf : public Workload {
 public:
  FileOf(const Configuration& c, const std::string& path, bool load)
      : model_(make_model(c, c.time)), list_(parameters<float>(model_)), path_(path), load_(load) {
    if (load_) save_safetensors(path_, list_);
  }
  ~FileOf() override {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  void run() override {
    if (load_)
      load_safetensors(path_, list_);
    else
      save_safetensors(path_, list_);
  }
  MemoryByDesign memory() const override { return {.parameters = bytes(list_)}; }

 private:
  TransformerLm<float> model_;
  ParameterList<float> list_;
  std::string path_;
  bool load_;
};

}  // namespace

double Configuration::gflop() const {
  const double rows = number(batch * time), w = number(width), l = number(layers);
  const double projections = 2 * rows * (l * 12 * w * w + number(vocabulary) * w);
  const double attention = 4 * rows * l * number(time) * w;
  return 3e-9 * (projections + attention);
}

double AttentionSize::gflop() const {
  const double rows = number(batch * time), w = number(width);
  return 3e-9 * (2 * rows * 4 * w * w + 4 * rows * number(time) * w);
}

const std::vector<Configuration>& configurations() {
  static const std::vector<Configuration> all = {{"toy", 32, 24, 16, 64, 4, 2},
                                                 {"baby", 12, 64, 65, 128, 4, 4},
                                                 {"medium", 8, 128, 256, 256, 8, 6},
                                                 {"larger", 4, 256, 1024, 512, 8, 6}};
  return all;
}

const Configuration& configuration(const std::string& name) {
  for (const Configuration& c : configurations())
    if (c.name == name) return c;
  throw Error(fmt::format("[configuration] expected toy, baby, medium or larger, got {}", name));
}

const std::vector<AttentionSize>& attention_sizes() {
  static const std::vector<AttentionSize> all = {{2, 6, 512, 8},    {16, 32, 64, 4},   {8, 128, 256, 8},
                                                 {4, 512, 512, 8},  {1, 1024, 512, 8}, {1, 2048, 512, 8},
                                                 {1, 4096, 512, 8}, {1, 8192, 256, 4}};
  return all;
}

std::unique_ptr<Workload> training_step(const Configuration& c) { return std::make_unique<TrainingStep>(c); }
std::unique_ptr<Workload> attention_step(const AttentionSize& size) { return std::make_unique<AttentionStep>(size); }
std::unique_ptr<Workload> decoding(const Configuration& c, std::size_t new_tokens) {
  return std::make_unique<Decoding>(c, new_tokens);
}
std::unique_ptr<Workload> matrix_product(std::size_t width) {
  return std::make_unique<MatrixProduct>(width, kernels::GemmCode::automatic);
}
std::unique_ptr<Workload> blas_product(std::size_t width) {
  return std::make_unique<MatrixProduct>(width, kernels::GemmCode::blas);
}
std::unique_ptr<Workload> gradient_check() { return std::make_unique<GradientCheck>(); }
std::unique_ptr<Workload> saving(const Configuration& c, const std::string& path) {
  return std::make_unique<FileOf>(c, path, false);
}
std::unique_ptr<Workload> loading(const Configuration& c, const std::string& path) {
  return std::make_unique<FileOf>(c, path, true);
}

}  // namespace xtape::benchmarks
