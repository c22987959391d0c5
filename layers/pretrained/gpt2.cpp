#include <xtape/layers/pretrained/gpt2.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include <xtape/framework/base/excerpt.hpp>
#include <xtape/framework/train/misfit.hpp>

namespace xtape {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// Throws FormatError "[gpt2] file: reason".
template <class... Args>
void expect(bool ok, const fs::path& path, fmt::format_string<Args...> reason, Args&&... args) {
  if (!ok)
    throw FormatError(fmt::format("[gpt2] {}: {}", path.string(), fmt::format(reason, std::forward<Args>(args)...)));
}

/// An array of a file, and the parameter that it is.
struct Entry {
  std::string name, parameter;
  std::vector<std::size_t> shape;  // in the file
  bool transposed;                 // against the parameter
};

/// All arrays of a model. What the published files call "Conv1D" multiplies from the right: weight (in, out).
std::vector<Entry> layout(const Gpt2Options& o, const std::string& prefix) {
  std::vector<Entry> entries;
  std::string block;  // of the parameters
  const auto array = [&](const std::string& name, const std::string& parameter, std::vector<std::size_t> shape) {
    entries.push_back({prefix + name, block + parameter, std::move(shape), false});
  };
  const auto norm = [&](const std::string& name, const std::string& parameter) {
    array(name + ".weight", parameter + ".weight", {o.width});
    array(name + ".bias", parameter + ".bias", {o.width});
  };
  const auto conv1d = [&](const std::string& name, const std::string& parameter, std::size_t in, std::size_t out) {
    array(name + ".weight", parameter + "weight", {in, out});
    entries.back().transposed = true;
    array(name + ".bias", parameter + "bias", {out});
  };
  array("wte.weight", "token_embedding.weight", {o.vocabulary, o.width});
  array("wpe.weight", "position_embedding.weight", {o.length, o.width});
  for (std::size_t i = 0; i < o.layers; ++i) {
    const std::string h = fmt::format("h.{}.", i);
    block = fmt::format("blocks.{}.", i);
    norm(h + "ln_1", "norm1");
    conv1d(h + "attn.c_attn", "self_attn.in_proj_", o.width, 3 * o.width);
    conv1d(h + "attn.c_proj", "self_attn.out_proj.", o.width, o.width);
    norm(h + "ln_2", "norm2");
    conv1d(h + "mlp.c_fc", "linear1.", o.width, o.hidden);
    conv1d(h + "mlp.c_proj", "linear2.", o.hidden, o.width);
  }
  block.clear();
  norm("ln_f", "norm");
  if (!o.tie_embeddings) entries.push_back({"lm_head.weight", "head.weight", {o.vocabulary, o.width}, false});
  return entries;
}

/// What a file's names and shapes say about the model; 0 where they say nothing. The heads are left open.
Gpt2Options sizes_of(const SafetensorsFile& file, const std::string& prefix) {
  const auto extent = [&](const std::string& name, std::size_t axis) {
    if (!file.contains(prefix + name)) return std::size_t{0};
    const auto& shape = file.shape(prefix + name);
    return axis < shape.size() ? shape[axis] : 0;
  };
  std::set<std::string> layers;  // their numbers
  for (const std::string& name : file.names())
    if (const std::string start = prefix + "h."; name.starts_with(start)) {
      const std::string number = name.substr(start.size(), name.find('.', start.size()) - start.size());
      if (number.find_first_not_of("0123456789") == std::string::npos) layers.insert(number);
    }
  const std::size_t bias_length = extent("h.0.mlp.c_fc.bias", 0);  // right also where the weight is transposed
  return {.vocabulary = extent("wte.weight", 0),
          .length = extent("wpe.weight", 0),
          .width = std::max({extent("wte.weight", 1), extent("wpe.weight", 1), extent("ln_f.weight", 0)}),
          .layers = layers.size(),
          .hidden = bias_length > 0 ? bias_length : extent("h.0.mlp.c_fc.weight", 1),
          .tie_embeddings = !file.contains("lm_head.weight")};
}

/// Throws unless the file holds these arrays in these shapes, and nothing else but masks of attention.
void expect_layout(const SafetensorsFile& file, const fs::path& path, const std::vector<Entry>& entries,
                   const std::string& prefix) {
  Misfit misfit;
  std::set<std::string> known;
  for (const Entry& entry : entries) {
    known.insert(entry.name);
    if (!file.contains(entry.name))
      misfit.missing.push_back(entry.name);
    else if (file.shape(entry.name) != entry.shape)
      misfit.misshapen.push_back(fmt::format("{} must be ({}), got ({})", entry.name, fmt::join(entry.shape, ", "),
                                             fmt::join(file.shape(entry.name), ", ")));
  }
  for (const std::string& name : file.names()) {
    const bool mask =
        name.starts_with(prefix + "h.") && (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
    if (!known.contains(name) && !mask) misfit.extra.push_back(name);
  }
  const std::string faults = misfit.text();
  expect(faults.empty(), path, "the file does not hold GPT-2's weights; {}", faults);
}

/// config.json of the file's folder, an empty object if there is none. Throws if it tells of another model.
Json config_beside(const fs::path& path, std::size_t layers) {
  const fs::path config_path = path.parent_path() / "config.json";
  if (!fs::exists(config_path)) return Json::object();
  std::ifstream in(config_path);
  const Json config = Json::parse(in, nullptr, false);
  expect(config.is_object(), config_path, "expected a JSON object");
  const auto one_of = [&](const char* key, const std::vector<Json>& right) {
    if (const auto found = config.find(key); found != config.end())
      expect(std::count(right.begin(), right.end(), *found) > 0, config_path, "{} must be {} for this model, got {}",
             key, right.front().dump(), excerpt(found->dump()));
  };
  one_of("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  one_of("layer_norm_epsilon", {1e-5});
  one_of("scale_attn_weights", {true});
  one_of("scale_attn_by_inverse_layer_idx", {false});
  one_of("n_layer", {layers});
  return config;
}

/// The number of heads that a caller asks for, a file's metadata or its config.json name; they must agree.
std::size_t heads_of(const SafetensorsFile& file, const fs::path& path, const Json& config, std::size_t asked) {
  std::set<std::string> said;
  if (asked > 0) said.insert(std::to_string(asked));
  if (const auto found = file.metadata().find("n_head"); found != file.metadata().end())
    said.insert(excerpt(found->second));
  if (config.contains("n_head")) said.insert(excerpt(config["n_head"].dump()));
  expect(!said.empty(), path,
         "the number of heads stands neither in the metadata nor in a config.json beside the file (n_head), so it has "
         "to be given");
  expect(said.size() == 1, path, "the caller, the metadata and config.json must agree on the number of heads, got {}",
         fmt::join(said, " and "));
  const std::string& text = *said.begin();
  std::size_t heads = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), heads);
  expect(error == std::errc() && end == text.data() + text.size() && heads > 0, path,
         "n_head must be a number of at least 1, got {}", text);
  return heads;
}

/// Copies a matrix (rows, columns) to (columns, rows).
template <class T>
void transpose_into(T* to, const T* from, std::size_t rows, std::size_t columns) {
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

template <class T>
Parameter<T> parameter_named(const ParameterList<T>& list, const std::string& name) {
  return std::find_if(list.begin(), list.end(), [&](const auto& entry) { return entry.name == name; })
      ->parameter.share();
}

}  // namespace

template <class T>
Gpt2<T> load_gpt2(const fs::path& given, std::size_t heads) {
  const fs::path path = fs::is_directory(given) ? given / "model.safetensors" : given;
  const SafetensorsFile file(path);
  const auto names = file.names();
  const bool prefixed =
      std::any_of(names.begin(), names.end(), [](auto& name) { return name.starts_with("transformer."); });
  const std::string prefix = prefixed ? "transformer." : "";

  Gpt2Options options = sizes_of(file, prefix);
  expect_layout(file, path, layout(options, prefix), prefix);  // before anything is allocated by it
  expect(std::min({options.vocabulary, options.length, options.width, options.layers, options.hidden}) > 0, path,
         "no size of the model may be 0");
  options.heads = heads_of(file, path, config_beside(path, options.layers), heads);
  require<ShapeError>(options.width % options.heads == 0,
                      "[gpt2] {}: the width must be a multiple of the heads, got width {} and heads {}", path.string(),
                      options.width, options.heads);
  if (!options.tie_embeddings)
    options.tie_embeddings = file.read<T>("lm_head.weight") == file.read<T>(prefix + "wte.weight");

  const NoInitialValues filled_below;
  Rng rng(0);
  Gpt2<T> model(options, rng);
  const ParameterList<T> list = parameters<T>(model);
  for (const Entry& entry : layout(options, prefix)) {
    const std::vector<T> values = file.read<T>(entry.name);
    T* to = parameter_named(list, entry.parameter).write_data();
    if (entry.transposed)
      transpose_into(to, values.data(), entry.shape[0], entry.shape[1]);
    else
      std::copy(values.begin(), values.end(), to);
  }
  return model;
}

template <class T>
void save_gpt2(const fs::path& path, Gpt2<T>& model, SaveOptions save) {
  const ParameterList<T> list = parameters<T>(model);
  const Gpt2Options options{.vocabulary = model.token_embedding.weight.shape()[0],
                            .length = model.position_embedding->weight.shape()[0],
                            .width = model.token_embedding.weight.shape()[1],
                            .layers = model.blocks.size(),
                            .hidden = model.blocks[0].feed_forward->linear1.weight.shape()[0],
                            .tie_embeddings = model.head.weight.is(model.token_embedding.weight)};
  std::vector<NamedArray> arrays;
  std::vector<std::vector<T>> transposed;  // moving a vector leaves its elements where they are
  for (const Entry& entry : layout(options, "transformer.")) {
    const Parameter<T> parameter = parameter_named(list, entry.parameter);
    std::span<const T> values(parameter.data(), parameter.size());
    if (entry.transposed) {
      transposed.emplace_back(parameter.size());
      transpose_into(transposed.back().data(), parameter.data(), entry.shape[1], entry.shape[0]);
      values = transposed.back();
    }
    arrays.push_back({entry.name, Shape(entry.shape), values, save.dtype});
  }
  write_safetensors(path, arrays, {{"format", "pt"}, {"n_head", std::to_string(model.blocks[0].self_attn.heads)}});
}

template Gpt2<float> load_gpt2(const fs::path&, std::size_t);
template Gpt2<double> load_gpt2(const fs::path&, std::size_t);
template void save_gpt2(const fs::path&, Gpt2<float>&, SaveOptions);
template void save_gpt2(const fs::path&, Gpt2<double>&, SaveOptions);

}  // namespace xtape
