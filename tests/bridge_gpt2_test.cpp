// GPT-2's weights in Hugging Face's files: loaded, generated from, written, and refused where something is wrong.

#include <map>

#include "bridge.hpp"
#include "files.hpp"

namespace xtape::bridge_gpt2_test {
namespace {

const std::filesystem::path golden = bridge_folder / "gpt2.safetensors";
constexpr std::size_t heads = 4;

struct Array {
  std::vector<std::size_t> shape;
  std::vector<float> values;
  bool operator==(const Array&) const = default;
};
using Arrays = std::map<std::string, Array>;

Arrays read(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  Arrays arrays;
  for (const std::string& name : file.names())
    if (file.dtype(name) == "F32") arrays[name] = {file.shape(name), file.read<float>(name)};
  return arrays;
}
void write(const std::filesystem::path& path, const Arrays& arrays, const Metadata& metadata = {}) {
  std::vector<NamedArray> named;
  for (const auto& [name, array] : arrays)
    named.push_back({name, Shape(array.shape), std::span<const float>(array.values)});
  write_safetensors(path, named, metadata);
}
/// The weights of the golden model, without the masks that stand among them.
Arrays weights() {
  Arrays arrays = read(golden);
  std::erase_if(arrays, [](const auto& array) { return array.first.ends_with(".attn.bias"); });
  return arrays;
}

struct Text {
  std::vector<std::int64_t> tokens, continuation;
  std::vector<float> logits;
  Shape shape;  // of tokens

  explicit Text(const std::string& model = "") {
    const SafetensorsFile file(bridge_folder / "gpt2.io.safetensors");
    tokens = file.read<std::int64_t>("tokens");
    shape = Shape(file.shape("tokens"));
    logits = file.read<float>("logits" + model);
    continuation = file.read<std::int64_t>("continuation" + model);
  }
};

/// The model gives the logits and the continuations that were computed elsewhere.
void expect_says(const Gpt2<float>& model, const Text& text) {
  Tape<float> tape;
  const Var<float> logits = model(tape, tape.integers(text.tokens.data(), text.shape));
  EXPECT_EQ(logits.shape(), (Shape{2, 7, 40}));
  EXPECT_LE(error_of(logits, text.logits), tolerance::bridge);
  const auto t = text.tokens.begin();
  const auto answers = generate(model, TokenRows{{t, t + 7}, {t + 7, t + 14}}, {.new_tokens = 12});
  auto row = answers[0];
  row.insert(row.end(), answers[1].begin(), answers[1].end());
  EXPECT_EQ(row, text.continuation);
}

TEST(Gpt2File, SaysWhatAnotherImplementationSays) {
  for (const char* name : {"gpt2.safetensors", "gpt2_lm_head.safetensors"})
    expect_says(load_gpt2<float>(bridge_folder / name, heads), Text());
}

TEST(Gpt2File, InHalfPrecisionToo) {
  for (const char* type : {"_f16", "_bf16"})
    expect_says(load_gpt2<float>(bridge_folder / (std::string("gpt2") + type + ".safetensors"), heads), Text(type));
}

TEST(Gpt2File, TheHeadsComeFromTheCallTheMetadataOrTheConfiguration) {
  const TemporaryFolder folder;
  const auto path = folder / "model.safetensors";
  const auto config = [&](const std::string& text) { write_bytes(folder / "config.json", text); };
  const auto heads_of = [](const Gpt2<float>& model) { return model.blocks[1].self_attn.heads; };
  write(path, weights());
  expect_message<FormatError>([&] { load_gpt2<float>(path); }, {"model.safetensors", "heads", "has to be given"});
  EXPECT_EQ(heads_of(load_gpt2<float>(path, 2)), 2u);
  config(R"({"n_head": 4, "n_layer": 2, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05})");
  EXPECT_EQ(heads_of(load_gpt2<float>(path)), 4u);
  expect_says(load_gpt2<float>(folder.path()), Text());
  expect_message<FormatError>([&] { load_gpt2<float>(path, 2); }, {"agree", "got 2 and 4"});
  write(path, weights(), {{"n_head", "8"}});
  expect_message<FormatError>([&] { load_gpt2<float>(path); }, {"agree", "got 4 and 8"});
  config("{}");
  EXPECT_EQ(heads_of(load_gpt2<float>(path)), 8u);

  write(path, weights());
  for (const char* number : {"-4", "4.0", "\"4\"", "0", "1e30", "null"}) {
    config(fmt::format(R"({{"n_head": {}}})", number));
    expect_message<FormatError>([&] { load_gpt2<float>(path); }, {"n_head must be a number of at least 1, got"});
  }
  for (const char* wrong : {R"({"n_head": 4)", "[]", ""}) {
    config(wrong);
    expect_message<FormatError>([&] { load_gpt2<float>(path); }, {"config.json", "JSON object"});
  }
  config("{}");
  expect_message<ShapeError>([&] { load_gpt2<float>(path, 3); }, {"[gpt2]", "width 16 and heads 3"});
}

TEST(Gpt2File, AConfigurationOfAnotherModelIsRefused) {
  const TemporaryFolder folder;
  const auto path = folder / "model.safetensors";
  write(path, weights());
  for (const char* entry : {R"("n_layer": 3)", R"("activation_function": "relu")", R"("layer_norm_epsilon": 1e-06)",
                            R"("scale_attn_weights": false)", R"("scale_attn_by_inverse_layer_idx": true)"}) {
    const std::string text = entry, key = text.substr(1, text.find('"', 1) - 1);
    write_bytes(folder / "config.json", "{" + text + "}");
    expect_message<FormatError>([&] { load_gpt2<float>(path, heads); }, {"config.json", key.c_str(), "must be", "got"});
  }
}

TEST(Gpt2File, WhatIsWrittenIsWhatWasRead) {
  const TemporaryFolder folder;
  auto model = load_gpt2<float>(golden, heads);
  save_gpt2(folder / "out.safetensors", model);
  Arrays right;
  for (const auto& [name, array] : weights()) right["transformer." + name] = array;
  EXPECT_EQ(read(folder / "out.safetensors"), right);
  EXPECT_EQ(SafetensorsFile(folder / "out.safetensors").metadata(), (Metadata{{"format", "pt"}, {"n_head", "4"}}));
  expect_says(load_gpt2<float>(folder / "out.safetensors"), Text());
  save_gpt2(folder / "half.safetensors", model, {.dtype = Dtype::F16});
  const SafetensorsFile half(folder / "half.safetensors"), their_half(bridge_folder / "gpt2_f16.safetensors");
  for (const std::string& name : their_half.names()) {
    EXPECT_EQ(half.dtype("transformer." + name), "F16");
    EXPECT_EQ(half.read<float>("transformer." + name), their_half.read<float>(name)) << name;
  }
  auto in_double = load_gpt2<double>(folder / "out.safetensors");
  save_gpt2(folder / "double.safetensors", in_double);
  EXPECT_EQ(SafetensorsFile(folder / "double.safetensors").read<float>("transformer.h.1.mlp.c_fc.weight"),
            right["transformer.h.1.mlp.c_fc.weight"].values);
}

TEST(Gpt2File, AHeadOfItsOwnIsKept) {
  const TemporaryFolder folder;
  Arrays arrays = weights();
  arrays["lm_head.weight"] = arrays["wte.weight"];
  arrays["lm_head.weight"].values[3] += 1;
  write(folder / "in", arrays);
  auto model = load_gpt2<float>(folder / "in", heads);
  EXPECT_FALSE(model.head.weight.is(model.token_embedding.weight));
  EXPECT_EQ(model.head.weight.data()[3], arrays["lm_head.weight"].values[3]);
  save_gpt2(folder / "out", model);
  EXPECT_EQ(read(folder / "out").at("lm_head.weight"), arrays["lm_head.weight"]);
}

TEST(Gpt2File, AnyModelIsWrittenAndReadAgain) {
  const TemporaryFolder folder;
  Rng rng(5);
  Gpt2<float> model({.vocabulary = 11, .length = 5, .width = 6, .heads = 3, .layers = 3, .hidden = 4}, rng);
  save_gpt2(folder / "x", model);
  auto again = load_gpt2<float>(folder / "x");
  const auto before = parameters<float>(model), after = parameters<float>(again);
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(before[i].name, after[i].name);
    EXPECT_TRUE(std::equal(before[i].parameter.data(), before[i].parameter.data() + before[i].parameter.size(),
                           after[i].parameter.data()))
        << before[i].name;
  }
}

TEST(Gpt2File, AllThatIsWrongStandsInOneMessage) {
  const TemporaryFolder folder;
  const auto path = folder / "x";
  const auto refused = [&](const Arrays& arrays, std::initializer_list<const char*> parts) {
    write(path, arrays);
    expect_message<FormatError>([&] { load_gpt2<float>(path, heads); }, parts);
  };
  Arrays arrays = weights();
  for (const char* name : {"attn.c_attn", "mlp.c_fc", "mlp.c_proj"}) {  // as of nn.Linear
    auto& shape = arrays[std::string("h.0.") + name + ".weight"].shape;
    std::swap(shape[0], shape[1]);
  }
  arrays.erase("h.1.ln_2.bias");
  arrays.erase("ln_f.weight");
  arrays["h.1.attn.c_attn.scale"] = arrays["score.weight"] = {{1}, {0}};
  refused(arrays,
          {"[gpt2]", path.c_str(), "missing: h.1.ln_2.bias, ln_f.weight;",
           "not in the model: h.1.attn.c_attn.scale, score.weight;",
           "of another shape: h.0.attn.c_attn.weight must be (16, 48), got (48, 16), h.0.mlp.c_fc.weight must be "
           "(16, 64), got (64, 16), h.0.mlp.c_proj.weight must be (64, 16), got (16, 64)"});
  refused({}, {"missing: wte.weight, wpe.weight, ln_f.weight, ln_f.bias"});
  refused({{"transformer.x", {{1}, {0}}}}, {"missing: transformer.wte.weight", "not in the model: transformer.x"});

  arrays = weights();
  std::erase_if(arrays, [](const auto& array) { return array.first.starts_with("h.0."); });
  refused(arrays, {"missing: h.0.ln_1.weight", "not in the model: h.1.attn.c_attn.bias"});
  arrays = weights();
  arrays["transformer.wte.weight"] = arrays["wte.weight"];  // with and without the prefix
  refused(arrays, {"missing: transformer.wpe.weight", "not in the model: h.0.attn.c_attn.bias"});
  arrays = weights();
  arrays["lm_head.weight"] = {{41, 16}, std::vector<float>(41 * 16)};
  refused(arrays, {"lm_head.weight must be (40, 16), got (41, 16)"});
  arrays = weights();
  arrays["wpe.weight"] = {{0, 16}, {}};
  refused(arrays, {"no size of the model may be 0"});
  arrays["wpe.weight"] = {{std::size_t{1} << 40, 0}, {}};
  refused(arrays, {"wpe.weight must be (1099511627776, 16), got (1099511627776, 0)"});
  EXPECT_THROW(load_gpt2<float>(folder / "nothing", heads), FormatError);
}

TEST(Gpt2File, PyTorchSaysWhatAWrittenModelSays) {
  const std::string python = python_with("torch");
  if (python.empty())
    GTEST_SKIP() << "there is no PyTorch (in Debian: python3-torch), so only the files of tests/bridge are checked";
  const TemporaryFolder folder;
  Rng rng(6);
  Gpt2<float> model({.vocabulary = 40, .length = 24, .width = 16, .heads = 4, .layers = 2}, rng);
  for (const auto& entry : parameters<float>(model)) {
    Parameter<float> parameter = entry.parameter.share();
    init_normal(parameter, 0.3, rng);
  }
  save_gpt2(folder / "model.safetensors", model);
  const Text text;
  Tape<float> tape;
  const Var<float> logits = model(tape, tape.integers(text.tokens.data(), text.shape));
  write_safetensors(folder / "io.safetensors",
                    {{"tokens", text.shape, std::span<const std::int64_t>(text.tokens)},
                     {"logits", logits.shape(), std::span<const float>(logits.data(), logits.size())}});
  EXPECT_TRUE(succeeds(python, "gpt2.py check " + folder.path().string()));
}

}  // namespace
}  // namespace xtape::bridge_gpt2_test
