// Any bytes, read as a safetensors file: refused with a FormatError, or read whole, and then what was read is written
// and read again. See README.md.

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <list>

#include <xtape/framework/base/error.hpp>
#include <xtape/framework/train/safetensors_file.hpp>

namespace {

using namespace xtape;

/// Ends the process, which is how a fuzzer learns of a fault.
void check(bool ok, const char* fault) {
  if (ok) return;
  fmt::print(stderr, "fault: {}\n", fault);
  std::abort();
}

struct Parsed {
  SafetensorsHeader header;
  std::span<const std::byte> data;
};

Parsed parse(std::span<const std::byte> bytes) {
  const std::string_view text = safetensors_header_text(bytes, "file");
  const auto data = bytes.subspan(sizeof(std::uint64_t) + text.size());
  return {parse_safetensors_header(text, data.size(), "file"), data};
}

std::span<const std::byte> bytes_of(const Parsed& file, const StoredArray& array) {
  return file.data.subspan(array.begin, array.end - array.begin);
}

/// Elements as T; nothing if the file's type cannot be read so.
template <class T>
std::optional<std::vector<T>> read(const Parsed& file, const StoredArray& array) {
  try {
    return read_elements<T>(array.dtype, bytes_of(file, array), "array");
  } catch (const FormatError&) {
    return std::nullopt;
  }
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Writes the arrays that a program can hold, and checks that they come back with the same bits.
void check_round_trip(const Parsed& file) {
  std::list<std::vector<double>> floats;  // stay where they are
  std::list<std::vector<std::int64_t>> integers;
  std::vector<NamedArray> arrays;
  for (const auto& [name, array] : file.header.arrays) {
    if (array.shape.size() > Shape::max_rank) continue;
    const Shape shape(array.shape);
    if (auto values = read<double>(file, array)) {
      floats.push_back(std::move(*values));
      arrays.push_back({name, shape, std::span<const double>(floats.back()), array.dtype});
    } else if (auto numbers = read<std::int64_t>(file, array)) {
      integers.push_back(std::move(*numbers));
      arrays.push_back({name, shape, std::span<const std::int64_t>(integers.back())});
    }
  }
  std::vector<std::byte> bytes;
  encode_safetensors(arrays, file.header.metadata, "file",
                     [&](std::span<const std::byte> piece) { bytes.insert(bytes.end(), piece.begin(), piece.end()); });
  const Parsed again = parse(bytes);
  check(again.header.metadata == file.header.metadata, "metadata changed");
  check(again.header.arrays.size() == arrays.size(), "arrays came or went");
  for (const NamedArray& array : arrays) {
    const StoredArray& stored = again.header.arrays.at(array.name);
    check(stored.shape == file.header.arrays.at(array.name).shape, "a shape changed");
    if (const auto* values = std::get_if<std::span<const double>>(&array.data)) {
      const auto back = read<double>(again, stored);
      check(back && same(*back, {values->begin(), values->end()}), "a number changed");
    } else {
      const auto& numbers = std::get<std::span<const std::int64_t>>(array.data);
      const auto back = read<std::int64_t>(again, stored);
      check(back && same(*back, {numbers.begin(), numbers.end()}), "an integer changed");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Parsed file;
  try {
    file = parse(std::as_bytes(std::span(data, size)));
  } catch (const FormatError& error) {
    check(std::strlen(error.what()) < 3000, "a message without end");
    return 0;
  }
  std::uint64_t sum = 0;
  for (const auto& [name, array] : file.header.arrays) {
    sum += array.end - array.begin;
    const auto singles = read<float>(file, array);
    const auto doubles = read<double>(file, array);
    const auto integers = read<std::int64_t>(file, array);
    check(singles.has_value() == doubles.has_value() && !(doubles && integers), "an array of two kinds");
    const std::uint64_t count = (array.end - array.begin) * 8 / bits_of(array.dtype);
    check(!doubles || (doubles->size() == count && singles->size() == count), "not as many floats as the file has");
    check(!integers || integers->size() == count, "not as many integers as the file has");
  }
  check(sum == file.data.size(), "bytes that belong to no array");
  check_round_trip(file);
  return 0;
}
