#include <xtape/framework/train/safetensors_header.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include <xtape/framework/base/error.hpp>
#include <xtape/framework/base/excerpt.hpp>

namespace xtape {
namespace {

constexpr std::uint64_t length_bytes = 8, longest_header = 100'000'000;
constexpr std::size_t most_extents = 64;

struct Type {
  std::string name;
  std::uint64_t bits;
};
const std::array<Type, 22>& types() {
  static const std::array<Type, 22> table = {
      {{"F64", 64},        {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"I64", 64},    {"I32", 32},
       {"I16", 16},        {"I8", 8},      {"U8", 8},      {"BOOL", 8},    {"U64", 64},    {"U32", 32},
       {"U16", 16},        {"C64", 64},    {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
       {"F8_E5M2FNUZ", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}}};
  return table;
}

/// Throws FormatError "[safetensors] file: reason".
template <class... Args>
[[noreturn]] void fail(const std::string& file, fmt::format_string<Args...> reason, Args&&... args) {
  throw FormatError(fmt::format("[safetensors] {}: {}", file, fmt::format(reason, std::forward<Args>(args)...)));
}

/// Takes a header as the parser comes upon its parts, so that nothing is built that has no place in one.
class HeaderReader {
 public:
  HeaderReader(std::uint64_t data_size, const std::string& file) : data_size_(data_size), file_(file) {}
  SafetensorsHeader take() { return std::move(header_); }

  // What the parser calls; each returns true, to go on, or throws.
  bool start_object(std::size_t) {
    if (place_ == Place::outside)
      place_ = Place::top;
    else if (place_ == Place::top)
      name_ == "__metadata__" ? enter(Place::metadata) : enter(Place::entry);
    else
      refuse("an object");
    return true;
  }
  bool end_object() {
    if (place_ == Place::entry) finish_entry();
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }
  bool start_array(std::size_t) {
    if (place_ != Place::entry || field_ == "dtype") refuse("a list");
    place_ = field_ == "shape" ? Place::shape : Place::offsets;
    return true;
  }
  bool end_array() {
    place_ = Place::entry;
    return true;
  }
  bool key(std::string& text) {
    if (place_ == Place::top) {
      const bool again = text == "__metadata__" ? std::exchange(has_metadata_, true) : header_.arrays.contains(text);
      if (again) fail(file_, "the header names \"{}\" twice", excerpt(text));
      name_ = std::move(text);
    } else if (place_ == Place::metadata) {
      if (header_.metadata.contains(text)) fail(file_, "__metadata__ names \"{}\" twice", excerpt(text));
      field_ = std::move(text);
    } else {
      if (text != "dtype" && text != "shape" && text != "data_offsets")
        fail(file_, "the entry of {} must hold dtype, shape and data_offsets alone, got \"{}\"", excerpt(name_),
             excerpt(text));
      const bool again = std::find(fields_.begin(), fields_.end(), text) != fields_.end();
      if (again) fail(file_, "the entry of {} names \"{}\" twice", excerpt(name_), text);
      field_ = text;
      fields_.push_back(std::move(text));
    }
    return true;
  }
  bool string(std::string& text) {
    if (place_ == Place::metadata)
      header_.metadata.emplace(std::move(field_), std::move(text));
    else if (place_ == Place::entry && field_ == "dtype")
      array_.dtype = dtype_of(text);
    else
      refuse("a text");
    return true;
  }
  bool number_unsigned(std::uint64_t n) {
    if (place_ == Place::shape)
      array_.shape.push_back(n);
    else if (place_ == Place::offsets)
      offsets_.push_back(n);
    else
      refuse("a number");
    if (array_.shape.size() > most_extents || offsets_.size() > 2)
      fail(file_, "the entry of {} holds a list that is too long as its {}", excerpt(name_), field_);
    return true;
  }
  bool number_integer(std::int64_t) { return refuse("a negative number"); }
  bool number_float(double, const std::string&) { return refuse("a number that is fractional or too large"); }
  bool boolean(bool) { return refuse("true or false"); }
  bool null() { return refuse("null"); }
  bool binary(nlohmann::json::binary_t&) { return refuse("binary data"); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception& error) {
    std::string_view reason = error.what();  // "[json.exception...] parse error at ...: reason; last read: 'text'"
    reason = reason.substr(0, reason.find("; last read"));
    fail(file_, "the header is not valid JSON at byte {} ({})", at, excerpt(reason.substr(reason.rfind(": ") + 2)));
  }

 private:
  enum class Place { outside, top, metadata, entry, shape, offsets };

  void enter(Place place) {
    place_ = place;
    array_ = {};
    offsets_.clear();
    fields_.clear();
  }

  /// Something that does not belong where it stands.
  [[noreturn]] bool refuse(const char* got) const {
    if (place_ == Place::outside) fail(file_, "the header must be a JSON object, got {}", got);
    if (place_ == Place::metadata)
      fail(file_, "__metadata__ must be an object of texts, got {} for \"{}\"", got, excerpt(field_));
    if (place_ == Place::top && name_ == "__metadata__")
      fail(file_, "__metadata__ must be an object of texts, got {}", got);
    if (place_ == Place::top) fail(file_, "the entry of {} must be an object, got {}", excerpt(name_), got);
    fail(file_, "the entry of {} must hold {} as its {}, got {}", excerpt(name_),
         field_ == "dtype" ? "a text" : "a list of whole numbers", field_, got);
  }

  Dtype dtype_of(const std::string& name) const {
    const auto found =
        std::find_if(types().begin(), types().end(), [&](const Type& type) { return type.name == name; });
    if (found == types().end()) fail(file_, "{} has the unknown type \"{}\"", excerpt(name_), excerpt(name));
    return static_cast<Dtype>(found - types().begin());
  }

  void finish_entry() {
    if (fields_.size() != 3 || offsets_.size() != 2)
      fail(file_, "the entry of {} must hold dtype, shape and data_offsets [begin, end]", excerpt(name_));
    array_.begin = offsets_[0], array_.end = offsets_[1];
    if (array_.begin > array_.end || array_.end > data_size_)
      fail(file_, "the data of {} must lie within {} bytes, got [{}, {})", excerpt(name_), data_size_, array_.begin,
           array_.end);
    std::uint64_t bits = bits_of(array_.dtype);
    bool overflow = false;
    for (const std::size_t extent : array_.shape) overflow |= __builtin_mul_overflow(bits, extent, &bits);
    if (overflow || bits % 8 != 0 || bits / 8 != array_.end - array_.begin)
      fail(file_, "{} of shape ({}) and type {} does not fill [{}, {})", excerpt(name_), fmt::join(array_.shape, ", "),
           to_string(array_.dtype), array_.begin, array_.end);
    header_.arrays.emplace(std::move(name_), std::move(array_));
  }

  std::uint64_t data_size_;
  const std::string& file_;
  SafetensorsHeader header_;
  Place place_ = Place::outside;
  bool has_metadata_ = false;
  std::string name_, field_;  // the keys that the parser is below
  std::vector<std::string> fields_;
  StoredArray array_;
  std::vector<std::uint64_t> offsets_;
};

/// The arrays' bytes are those of the data, each once.
void expect_contiguous(const SafetensorsHeader& header, std::uint64_t data_size, const std::string& file) {
  std::vector<const std::pair<const std::string, StoredArray>*> in_order;
  for (const auto& entry : header.arrays) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(), [](auto* a, auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t at = 0;
  for (const auto* entry : in_order) {
    if (entry->second.begin != at)
      fail(file, "expected data without hole or overlap, but {} begins at {} and what is before it ends at {}",
           excerpt(entry->first), entry->second.begin, at);
    at = entry->second.end;
  }
  if (at != data_size) fail(file, "expected {} bytes of data, got {}", at, data_size);
}

/// A JSON string.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result += '\\', result += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      result += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      result += c;
  }
  return result + '"';
}

}  // namespace

const std::string& to_string(Dtype dtype) { return types()[static_cast<std::size_t>(dtype)].name; }
std::uint64_t bits_of(Dtype dtype) { return types()[static_cast<std::size_t>(dtype)].bits; }

std::string_view safetensors_header_text(std::span<const std::byte> bytes, const std::string& file) {
  if (bytes.size() < length_bytes) fail(file, "expected at least {} bytes, got {}", length_bytes, bytes.size());
  std::uint64_t size = 0;
  std::memcpy(&size, bytes.data(), length_bytes);
  const std::uint64_t most = std::min<std::uint64_t>(longest_header, bytes.size() - length_bytes);
  if (size > most)
    fail(file, "the header claims {} bytes, but may have at most {} in this file of {} bytes", size, most,
         bytes.size());
  return {reinterpret_cast<const char*>(bytes.data()) + length_bytes, size};
}

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_size, const std::string& file) {
  if (text.size() > longest_header)
    fail(file, "the header may have at most {} bytes, got {}", longest_header, text.size());
  if (!text.starts_with('{')) fail(file, "the header must be a JSON object and begin with {{");
  if (text.find('\0') != std::string_view::npos) fail(file, "the header is not valid JSON (it holds a zero byte)");
  HeaderReader reader(data_size, file);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  SafetensorsHeader header = reader.take();
  expect_contiguous(header, data_size, file);
  return header;
}

std::string format_safetensors_header(const SafetensorsHeader& header) {
  std::vector<std::string> entries;
  std::vector<std::string> texts;
  for (const auto& [key, value] : header.metadata) texts.push_back(quoted(key) + ':' + quoted(value));
  if (!texts.empty()) entries.push_back(fmt::format(R"("__metadata__":{{{}}})", fmt::join(texts, ",")));
  for (const auto& [name, array] : header.arrays)
    entries.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", quoted(name),
                                  to_string(array.dtype), fmt::join(array.shape, ","), array.begin, array.end));
  return fmt::format("{{{}}}", fmt::join(entries, ","));
}

}  // namespace xtape
