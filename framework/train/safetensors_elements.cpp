#include <xtape/framework/train/safetensors_elements.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include <xtape/framework/base/error.hpp>
#include <xtape/framework/base/float16.hpp>

namespace xtape {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and is copied as it is");

/// Elements that are stored as type Stored, of any alignment, each converted by `convert`.
template <class Stored, class T, class Convert>
std::vector<T> read_as(std::span<const std::byte> bytes, Convert convert) {
  std::vector<T> result(bytes.size() / sizeof(Stored));
  for (std::size_t i = 0; i < result.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    result[i] = static_cast<T>(convert(stored));
  }
  return result;
}
template <class Stored, class T>
std::vector<T> read_as(std::span<const std::byte> bytes) {
  return read_as<Stored, T>(bytes, [](Stored x) { return x; });
}

template <class Stored, class T, class Convert>
void write_as(std::span<const T> elements, const ByteSink& sink, Convert convert) {
  std::array<Stored, 8192> piece;
  while (!elements.empty()) {
    const std::size_t n = std::min(piece.size(), elements.size());
    std::transform(elements.begin(), elements.begin() + static_cast<std::ptrdiff_t>(n), piece.begin(), convert);
    sink(std::as_bytes(std::span(piece).first(n)));
    elements = elements.subspan(n);
  }
}

}  // namespace

template <class T>
std::vector<T> read_elements(Dtype dtype, std::span<const std::byte> bytes, const std::string& what) {
  if constexpr (std::is_floating_point_v<T>) {
    if (dtype == Dtype::F64) return read_as<double, T>(bytes);
    if (dtype == Dtype::F32) return read_as<float, T>(bytes);
    if (dtype == Dtype::F16) return read_as<std::uint16_t, T>(bytes, from_float16);
    if (dtype == Dtype::BF16) return read_as<std::uint16_t, T>(bytes, from_bfloat16);
    raise<FormatError>("{} must be F64, F32, F16 or BF16 to be read as floating point, got {}", what, to_string(dtype));
  } else {
    if (dtype == Dtype::I64) return read_as<std::int64_t, T>(bytes);
    if (dtype == Dtype::I32) return read_as<std::int32_t, T>(bytes);
    if (dtype == Dtype::I16) return read_as<std::int16_t, T>(bytes);
    if (dtype == Dtype::I8) return read_as<std::int8_t, T>(bytes);
    if (dtype == Dtype::U8) return read_as<std::uint8_t, T>(bytes);
    require<FormatError>(dtype == Dtype::BOOL,
                         "{} must be I64, I32, I16, I8, U8 or BOOL to be read as integers, got {}", what,
                         to_string(dtype));
    for (const std::byte b : bytes)
      require<FormatError>(b <= std::byte{1}, "{} must be 0 or 1 everywhere to be read as BOOL, got {}", what,
                           static_cast<int>(b));
    return read_as<std::uint8_t, T>(bytes);
  }
}

template <class T>
void write_elements(Dtype dtype, std::span<const T> elements, const std::string& what, const ByteSink& sink) {
  if constexpr (std::is_floating_point_v<T>) {
    if (dtype == (sizeof(T) == 8 ? Dtype::F64 : Dtype::F32)) return sink(std::as_bytes(elements));
    if (dtype == Dtype::F64) return write_as<double>(elements, sink, [](T x) { return static_cast<double>(x); });
    if (dtype == Dtype::F32) return write_as<float>(elements, sink, [](T x) { return static_cast<float>(x); });
    if (dtype == Dtype::F16) return write_as<std::uint16_t>(elements, sink, to_float16);
    if (dtype == Dtype::BF16) return write_as<std::uint16_t>(elements, sink, to_bfloat16);
    raise("{} can be written as F64, F32, F16 or BF16, got {}", what, to_string(dtype));
  } else {
    require(dtype == Dtype::I64, "{} can be written as I64, got {}", what, to_string(dtype));
    sink(std::as_bytes(elements));
  }
}

template std::vector<float> read_elements(Dtype, std::span<const std::byte>, const std::string&);
template std::vector<double> read_elements(Dtype, std::span<const std::byte>, const std::string&);
template std::vector<std::int64_t> read_elements(Dtype, std::span<const std::byte>, const std::string&);
template void write_elements(Dtype, std::span<const float>, const std::string&, const ByteSink&);
template void write_elements(Dtype, std::span<const double>, const std::string&, const ByteSink&);
template void write_elements(Dtype, std::span<const std::int64_t>, const std::string&, const ByteSink&);

}  // namespace xtape
