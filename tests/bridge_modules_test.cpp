// State dicts go both ways: layers and PyTorch's modules load each other's files strictly and give the same output.

#include "bridge.hpp"
#include "files.hpp"

namespace xtape::bridge_modules_test {
namespace {

constexpr std::size_t width = 8, heads = 2, hidden = 12, key_width = 6, value_width = 10, rows = 7;

/// The inputs of a module, and its output, in a file.
struct InputsAndOutput {
  SafetensorsFile file;

  explicit InputsAndOutput(const std::filesystem::path& folder, const std::string& name)
      : file(folder / (name + ".io.safetensors")) {}
  std::string input(std::size_t i) const { return "input." + std::to_string(i); }
  Var<float> operator()(Tape<float>& tape, std::size_t i) const {
    const auto values = file.read<float>(input(i));
    xt::xarray<float> x = zeros_of<float>(Shape(file.shape(input(i))));
    std::copy(values.begin(), values.end(), x.begin());
    return tape.input(x);
  }
  Integers integers(Tape<float>& tape, std::size_t i) const {
    const auto values = file.read<std::int64_t>(input(i));
    return tape.integers(values.data(), Shape(file.shape(input(i))));
  }
};

/// Calls visit(name, layer, call) for each module of tests/bridge/modules.py, where call(layer, tape, inputs) is its
/// output.
void for_each_module(auto visit) {
  using Io = InputsAndOutput;
  using Tape32 = Tape<float>;
  const auto one = [](auto& layer, Tape32& tape, const Io& x) { return layer(x(tape, 0)); };
  const auto two = [](auto& layer, Tape32& tape, const Io& x) { return layer(x(tape, 0), x(tape, 1)); };
  const auto three = [](auto& layer, Tape32& tape, const Io& x) { return layer(x(tape, 0), x(tape, 1), x(tape, 2)); };
  Rng rng(7);
  visit("linear", Linear<float>(width, hidden, rng), one);
  visit("linear_no_bias", Linear<float>(width, hidden, rng, {.bias = false}), one);
  visit("layer_norm", LayerNorm<float>(width), one);
  visit("embedding", Embedding<float>(rows, width, rng),
        [](auto& layer, Tape32& tape, const Io& x) { return layer(tape, x.integers(tape, 0)); });
  for (const bool bias : {true, false}) {
    const std::string end = bias ? "" : "_no_bias";
    visit("attention" + end, MultiHeadAttention<float>(width, heads, rng, {.bias = bias}), one);
    visit("attention_widths" + end,
          MultiHeadAttention<float>(width, heads, rng,
                                    {.bias = bias, .key_width = key_width, .value_width = value_width}),
          three);
  }
  for (const Norm norm : {Norm::pre, Norm::post})
    for (const Activation activation : {Activation::relu, Activation::gelu}) {
      const std::string end =
          std::string(norm == Norm::pre ? "_pre" : "_post") + (activation == Activation::relu ? "_relu" : "_gelu");
      const TransformerBlockOptions options{.norm = norm, .hidden = hidden, .activation = activation};
      visit("encoder" + end, TransformerBlock<float>(width, heads, rng, options), one);
      visit("decoder" + end, TransformerDecoderLayer<float>(width, heads, rng, options), two);
    }
}

/// Loads what PyTorch wrote, and compares outputs.
void expect_the_same_outputs(const std::filesystem::path& folder) {
  std::size_t modules = 0;
  for_each_module([&](const std::string& name, auto layer, auto call) {
    load_safetensors(folder / (name + ".safetensors"), parameters<float>(layer));
    const InputsAndOutput io(folder, name);
    Tape<float> tape;
    EXPECT_LE(error_of(call(layer, tape, io), io.file.read<float>("output")), tolerance::bridge) << name;
    ++modules;
  });
  EXPECT_EQ(modules, 16u);
}

/// Writes layers with random parameters, and their outputs for the inputs in tests/bridge.
void write_modules(const std::filesystem::path& folder) {
  Rng rng(8);
  for_each_module([&](const std::string& name, auto layer, auto call) {
    const auto list = parameters<float>(layer);
    for (const auto& entry : list) {  // biases and gains too
      Parameter<float> parameter = entry.parameter.share();
      init_normal(parameter, 0.5, rng);
    }
    save_safetensors(folder / (name + ".safetensors"), list);

    const InputsAndOutput io(bridge_folder, name);
    std::vector<std::vector<float>> floats(3);
    std::vector<std::int64_t> integers;
    std::vector<NamedArray> arrays;
    for (std::size_t i = 0; io.file.contains(io.input(i)); ++i) {
      const Shape shape(io.file.shape(io.input(i)));
      if (io.file.dtype(io.input(i)) == "I64") {
        integers = io.file.read<std::int64_t>(io.input(i));
        arrays.push_back({io.input(i), shape, std::span<const std::int64_t>(integers)});
      } else {
        floats[i] = io.file.read<float>(io.input(i));
        arrays.push_back({io.input(i), shape, std::span<const float>(floats[i])});
      }
    }
    Tape<float> tape;
    const Var<float> y = call(layer, tape, io);
    arrays.push_back({"output", y.shape(), std::span<const float>(y.data(), y.size())});
    write_safetensors(folder / (name + ".io.safetensors"), arrays);
  });
}

TEST(Bridge, LayersLoadWhatPyTorchWrote) { expect_the_same_outputs(bridge_folder); }

TEST(Bridge, LayersWriteTheNamesShapesAndTypesThatPyTorchWrites) {
  const TemporaryFolder folder;
  write_modules(folder.path());
  for_each_module([&](const std::string& name, const auto&, const auto&) {
    const SafetensorsFile theirs(bridge_folder / (name + ".safetensors")), ours(folder / (name + ".safetensors"));
    ASSERT_EQ(ours.names(), theirs.names()) << name;
    for (const std::string& array : ours.names()) {
      EXPECT_EQ(ours.shape(array), theirs.shape(array)) << name << ": " << array;
      EXPECT_EQ(ours.dtype(array), theirs.dtype(array)) << name << ": " << array;
    }
  });
}

TEST(Bridge, PyTorchAndLayersLoadEachOthersFiles) {
  const std::string python = python_with("torch");
  if (python.empty())
    GTEST_SKIP() << "there is no PyTorch (in Debian: python3-torch), so only the files of tests/bridge are checked";
  const TemporaryFolder theirs, ours;
  ASSERT_TRUE(succeeds(python, "modules.py write " + theirs.path().string()));
  expect_the_same_outputs(theirs.path());
  write_modules(ours.path());
  EXPECT_TRUE(succeeds(python, "modules.py check " + ours.path().string()));
}

TEST(Bridge, TheScriptConvertsEveryTypeAndSaysWhatIsWrong) {
  const std::string python = python_with("numpy");
  if (python.empty()) GTEST_SKIP() << "there is no NumPy (in Debian: python3-numpy), which the script needs";
  EXPECT_TRUE(succeeds(python, "convert_test.py"));
}

}  // namespace
}  // namespace xtape::bridge_modules_test
