#include <xtape/framework/train/safetensors_file.hpp>

#include <fmt/format.h>

#include <algorithm>

#include <xtape/framework/base/error.hpp>
#include <xtape/framework/train/replacement.hpp>

namespace xtape {
namespace {

const std::string who = "[safetensors] ";

std::string in_file(const std::string& file, const std::string& name) {
  return fmt::format("{}{}: {}", who, file, name);
}

Dtype dtype_of(const NamedArray& array) {
  constexpr Dtype of_data[] = {Dtype::F32, Dtype::F64, Dtype::I64};
  return array.dtype.value_or(of_data[array.data.index()]);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path.string()), file_(std::make_shared<MappedFile>(path, who)) {
  const std::span<const std::byte> bytes = file_->bytes();
  const std::string_view text = safetensors_header_text(bytes, path_);
  data_begin_ = sizeof(std::uint64_t) + text.size();
  header_ = parse_safetensors_header(text, bytes.size() - data_begin_, path_);
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> result;
  for (const auto& [name, array] : header_.arrays) result.push_back(name);
  return result;
}

const StoredArray& SafetensorsFile::array(const std::string& name) const {
  const auto found = header_.arrays.find(name);
  require<FormatError>(found != header_.arrays.end(), "{}{}: there is no array named {}", who, path_, name);
  return found->second;
}

template <class T>
std::vector<T> SafetensorsFile::read(const std::string& name) const {
  const StoredArray& stored = array(name);
  return read_elements<T>(stored.dtype, file_->bytes().subspan(data_begin_ + stored.begin, stored.end - stored.begin),
                          in_file(path_, name));
}

template std::vector<float> SafetensorsFile::read(const std::string&) const;
template std::vector<double> SafetensorsFile::read(const std::string&) const;
template std::vector<std::int64_t> SafetensorsFile::read(const std::string&) const;

void encode_safetensors(const std::vector<NamedArray>& arrays, const Metadata& metadata, const std::string& file,
                        const ByteSink& sink) {
  std::vector<const NamedArray*> in_order;  // the widest elements first, so that all of them are aligned
  for (const NamedArray& array : arrays) in_order.push_back(&array);
  std::stable_sort(in_order.begin(), in_order.end(),
                   [](auto* a, auto* b) { return bits_of(dtype_of(*a)) > bits_of(dtype_of(*b)); });
  SafetensorsHeader header{{}, metadata};
  std::uint64_t at = 0;
  for (const NamedArray* array : in_order) {
    const std::size_t count = std::visit([](auto data) { return data.size(); }, array->data);
    require<ShapeError>(count == array->shape.size(), "{} must have the {} elements of its shape {}, got {}",
                        in_file(file, array->name), array->shape.size(), array->shape, count);
    const std::uint64_t end = at + count * bits_of(dtype_of(*array)) / 8;
    const StoredArray stored{dtype_of(*array), {array->shape.begin(), array->shape.end()}, at, end};
    require(array->name != "__metadata__" && header.arrays.emplace(array->name, stored).second,
            "{}{}: each array needs a name of its own, got {} again", who, file, array->name);
    at = end;
  }
  std::string text = format_safetensors_header(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data starts at a multiple of 8
  parse_safetensors_header(text, at, file);     // what is written can be read: names and metadata are UTF-8, for one
  const std::uint64_t length = text.size();
  sink(std::as_bytes(std::span(&length, 1)));
  sink(std::as_bytes(std::span(text)));
  for (const NamedArray* array : in_order)
    std::visit([&](auto data) { write_elements(dtype_of(*array), data, in_file(file, array->name), sink); },
               array->data);
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedArray>& arrays,
                       const Metadata& metadata) {
  Replacement file(path, who);
  encode_safetensors(arrays, metadata, path.string(),
                     [&](std::span<const std::byte> bytes) { file.write(bytes.data(), bytes.size()); });
  file.finish();
}

}  // namespace xtape
