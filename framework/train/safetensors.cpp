#include <xtape/framework/train/safetensors.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include <xtape/framework/train/replacement.hpp>

namespace xtape {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and is copied as it is");

using Json = nlohmann::json;
constexpr std::uint64_t length_bytes = 8, longest_header = 100'000'000, longest_list = 64;

/// Bytes of one element; 0 for a type that the format does not know.
std::size_t width_of(const std::string& dtype) {
  static const std::map<std::string, std::size_t> widths = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"U64", 8},     {"I32", 4},    {"U32", 4},
      {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  const auto found = widths.find(dtype);
  return found == widths.end() ? 0 : found->second;
}

/// Throws FormatError "[safetensors] file: reason".
template <class... Args>
void expect(bool ok, const std::filesystem::path& path, fmt::format_string<Args...> reason, Args&&... args) {
  if (!ok)
    throw FormatError(
        fmt::format("[safetensors] {}: {}", path.string(), fmt::format(reason, std::forward<Args>(args)...)));
}

Json parse_header(const std::filesystem::path& path, const std::string& text) {
  expect(!text.empty() && text[0] == '{', path, "the header must be a JSON object");
  expect(text.find('\0') == std::string::npos, path, "the header is not valid JSON (it holds a zero byte)");
  std::set<std::string> names;
  std::size_t since_key = 0;  // bounds what one list may make the parser allocate; an array has few extents
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    expect(depth <= 4, path, "the header is nested too deeply");
    since_key = event == Json::parse_event_t::key ? 0 : since_key + 1;
    expect(since_key <= longest_list, path, "the header holds a list that is too long");
    if (event == Json::parse_event_t::key && depth == 1)
      expect(names.insert(parsed.get<std::string>()).second, path, "the header names {} twice", parsed.dump());
    return true;
  };
  try {
    return Json::parse(text, check);
  } catch (const Json::exception& error) {
    throw FormatError(fmt::format("[safetensors] {}: the header is not valid JSON ({})", path.string(), error.what()));
  }
}

bool is_count(const Json& value) { return value.is_number_unsigned(); }

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {
  std::ifstream file(path_, std::ios::binary);
  std::error_code error;
  const std::uint64_t size = std::filesystem::file_size(path_, error);
  expect(file.good() && !error, path_, "the file cannot be read");
  expect(size >= length_bytes, path_, "expected at least {} bytes, got {}", length_bytes, size);
  std::uint64_t header_size = 0;
  file.read(reinterpret_cast<char*>(&header_size), length_bytes);
  expect(header_size <= longest_header && header_size <= size - length_bytes, path_,
         "the header claims {} bytes, but may have at most {} in this file of {} bytes", header_size,
         std::min(longest_header, size - length_bytes), size);
  std::string text(header_size, '\0');
  file.read(text.data(), static_cast<std::streamsize>(header_size));
  expect(file.good(), path_, "the header cannot be read");
  data_begin_ = length_bytes + header_size;
  const std::uint64_t data_size = size - data_begin_;

  const Json header = parse_header(path_, text);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      expect(entry.is_object(), path_, "__metadata__ must be an object of texts");
      for (const auto& [key, value] : entry.items()) {
        expect(value.is_string(), path_, "__metadata__ must be an object of texts, got {} for {}", value.type_name(),
               key);
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    const bool whole = entry.is_object() && entry.size() == 3 && entry.contains("dtype") &&
                       entry["dtype"].is_string() && entry.contains("shape") && entry["shape"].is_array() &&
                       entry.contains("data_offsets") && entry["data_offsets"].is_array() &&
                       entry["data_offsets"].size() == 2 &&
                       std::all_of(entry["shape"].begin(), entry["shape"].end(), is_count) &&
                       std::all_of(entry["data_offsets"].begin(), entry["data_offsets"].end(), is_count);
    expect(whole, path_, "the entry of {} must hold dtype, shape and data_offsets [begin, end]", name);
    Tensor tensor{entry["dtype"].get<std::string>(), entry["shape"].get<std::vector<std::size_t>>(),
                  entry["data_offsets"][0].get<std::uint64_t>(), entry["data_offsets"][1].get<std::uint64_t>()};
    expect(tensor.begin <= tensor.end && tensor.end <= data_size, path_,
           "the data of {} must lie within {} bytes, got [{}, {})", name, data_size, tensor.begin, tensor.end);
    std::uint64_t bytes = width_of(tensor.dtype);
    expect(bytes > 0, path_, "{} has the unknown type {}", name, tensor.dtype);
    bool overflow = false;
    for (const std::size_t extent : tensor.shape) overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
    expect(!overflow && bytes == tensor.end - tensor.begin, path_,
           "{} of shape ({}) and type {} does not fill [{}, {})", name, fmt::join(tensor.shape, ", "), tensor.dtype,
           tensor.begin, tensor.end);
    tensors_.emplace(name, std::move(tensor));
  }

  std::vector<const Tensor*> in_order;
  for (const auto& [name, tensor] : tensors_) in_order.push_back(&tensor);
  std::sort(in_order.begin(), in_order.end(),
            [](auto* a, auto* b) { return std::tie(a->begin, a->end) < std::tie(b->begin, b->end); });
  std::uint64_t at = 0;
  for (const Tensor* tensor : in_order) {
    expect(tensor->begin == at, path_,
           "expected data without hole or overlap, but {} bytes are followed by an array that begins at {}", at,
           tensor->begin);
    at = tensor->end;
  }
  expect(at == data_size, path_, "expected {} bytes of data, got {}", at, data_size);
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> result;
  for (const auto& [name, tensor] : tensors_) result.push_back(name);
  return result;
}

const SafetensorsFile::Tensor& SafetensorsFile::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  expect(found != tensors_.end(), path_, "there is no array named {}", name);
  return found->second;
}

std::vector<char> SafetensorsFile::bytes(const Tensor& tensor) const {
  std::vector<char> result(tensor.end - tensor.begin);
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(data_begin_ + tensor.begin));
  file.read(result.data(), static_cast<std::streamsize>(result.size()));
  expect(file.good() || result.empty(), path_, "the data cannot be read");
  return result;
}

namespace {

template <class Stored, class T>
std::vector<T> convert(const std::vector<char>& bytes) {
  std::vector<T> result(bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < result.size(); ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    result[i] = static_cast<T>(value);
  }
  return result;
}

}  // namespace

template <class T>
std::vector<T> SafetensorsFile::read(const std::string& name) const {
  const Tensor& t = tensor(name);
  if constexpr (std::is_floating_point_v<T>) {
    expect(t.dtype == "F64" || t.dtype == "F32", path_, "{} must be F64 or F32 to be read as floating point, got {}",
           name, t.dtype);
    return t.dtype == "F64" ? convert<double, T>(bytes(t)) : convert<float, T>(bytes(t));
  } else {
    if (t.dtype == "I64") return convert<std::int64_t, T>(bytes(t));
    if (t.dtype == "I32") return convert<std::int32_t, T>(bytes(t));
    if (t.dtype == "I16") return convert<std::int16_t, T>(bytes(t));
    if (t.dtype == "I8") return convert<std::int8_t, T>(bytes(t));
    expect(t.dtype == "U8" || t.dtype == "BOOL", path_,
           "{} must be I64, I32, I16, I8, U8 or BOOL to be read as integers, got {}", name, t.dtype);
    return convert<std::uint8_t, T>(bytes(t));
  }
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedArray>& arrays,
                       const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t at = 0;
  for (const NamedArray& array : arrays) {
    require(array.name != "__metadata__" && !header.contains(array.name),
            "[safetensors] {}: each array needs a name of its own, got {} again", path.string(), array.name);
    const auto [dtype, bytes, count] = std::visit(
        [](auto data) {
          using Element = typename decltype(data)::element_type;
          const char* name = std::is_same_v<Element, const float>    ? "F32"
                             : std::is_same_v<Element, const double> ? "F64"
                                                                     : "I64";
          return std::tuple(name, data.size_bytes(), data.size());
        },
        array.data);
    require<ShapeError>(count == array.shape.size(),
                        "[safetensors] {}: {} must have the {} elements of its shape {}, got {}", path.string(),
                        array.name, array.shape.size(), array.shape, count);
    header[array.name] = {{"dtype", dtype},
                          {"shape", std::vector<std::size_t>(array.shape.begin(), array.shape.end())},
                          {"data_offsets", {at, at + bytes}}};
    at += bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception&) {
    throw Error(fmt::format("[safetensors] {}: names and metadata must be UTF-8", path.string()));
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data starts at a multiple of 8
  const std::uint64_t length = text.size();
  Replacement file(path, "[safetensors] ");
  file.write(&length, sizeof(length));
  file.write(text.data(), text.size());
  for (const NamedArray& array : arrays)
    std::visit([&](auto data) { file.write(data.data(), data.size_bytes()); }, array.data);
  file.finish();
}

template <class T>
void save_safetensors(const std::filesystem::path& path, const ParameterList<T>& list, const Metadata& metadata) {
  std::vector<NamedArray> arrays;
  for (const auto& [name, parameter] : list)
    arrays.push_back({name, parameter.shape(), std::span<const T>(parameter.data(), parameter.size())});
  write_safetensors(path, arrays, metadata);
}

template <class T>
void load_safetensors(const std::filesystem::path& path, const ParameterList<T>& list, LoadOptions options) {
  const SafetensorsFile file(path);
  std::vector<std::string> missing, extra, misshapen;
  for (const auto& [name, parameter] : list) {
    if (!file.contains(name)) {
      missing.push_back(name);
      continue;
    }
    const auto& shape = file.shape(name);
    if (!std::equal(shape.begin(), shape.end(), parameter.shape().begin(), parameter.shape().end()))
      misshapen.push_back(fmt::format("{} must be {}, got ({})", name, parameter.shape(), fmt::join(shape, ", ")));
  }
  for (const std::string& name : file.names())
    if (std::none_of(list.begin(), list.end(), [&](const auto& entry) { return entry.name == name; }))
      extra.push_back(name);
  if (!options.strict) missing.clear(), extra.clear();
  if (!missing.empty() || !extra.empty() || !misshapen.empty()) {
    std::vector<std::string> faults;
    if (!missing.empty()) faults.push_back(fmt::format("missing: {}", fmt::join(missing, ", ")));
    if (!extra.empty()) faults.push_back(fmt::format("not in the model: {}", fmt::join(extra, ", ")));
    if (!misshapen.empty()) faults.push_back(fmt::format("of another shape: {}", fmt::join(misshapen, ", ")));
    expect(false, path, "the file does not fit the model; {}", fmt::join(faults, "; "));
  }
  std::vector<std::pair<std::size_t, std::vector<T>>> values;  // all is read before anything is changed
  for (std::size_t i = 0; i < list.size(); ++i)
    if (file.contains(list[i].name)) values.emplace_back(i, file.read<T>(list[i].name));
  for (const auto& [i, value] : values) std::copy(value.begin(), value.end(), list[i].parameter.share().write_data());
}

template std::vector<float> SafetensorsFile::read(const std::string&) const;
template std::vector<double> SafetensorsFile::read(const std::string&) const;
template std::vector<std::int64_t> SafetensorsFile::read(const std::string&) const;
template void save_safetensors(const std::filesystem::path&, const ParameterList<float>&, const Metadata&);
template void save_safetensors(const std::filesystem::path&, const ParameterList<double>&, const Metadata&);
template void load_safetensors(const std::filesystem::path&, const ParameterList<float>&, LoadOptions);
template void load_safetensors(const std::filesystem::path&, const ParameterList<double>&, LoadOptions);

}  // namespace xtape
