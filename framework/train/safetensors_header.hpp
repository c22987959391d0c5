#pragma once
// The header of a safetensors file: which arrays it holds, of which type and shape, and where
// (https://github.com/huggingface/safetensors, "Format"). A file is the length of the header (8 bytes, little-endian),
// the header (a JSON object), and the data of the arrays one after another.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace xtape {

/// Free text that travels with a file.
using Metadata = std::map<std::string, std::string>;

/// The types of elements that the format has, by its own names. Those before U64 can be read.
enum class Dtype : std::uint8_t {
  F64,
  F32,
  F16,
  BF16,
  I64,
  I32,
  I16,
  I8,
  U8,
  BOOL,
  U64,
  U32,
  U16,
  C64,
  F8_E4M3,
  F8_E5M2,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  F6_E2M3,
  F6_E3M2,
  F4
};
const std::string& to_string(Dtype dtype);
/// Bits of one element.
std::uint64_t bits_of(Dtype dtype);

/// One array of a file: its bytes are [begin, end) of the data.
struct StoredArray {
  Dtype dtype = Dtype::F32;
  std::vector<std::size_t> shape;
  std::uint64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, StoredArray> arrays;
  Metadata metadata;
};

/// The header's text in a whole file. Throws FormatError with `file`, a name for the sentence, if its length is more
/// than the format allows (100,000,000) or than is there.
std::string_view safetensors_header_text(std::span<const std::byte> bytes, const std::string& file);

/// Reads a header of a file with so many bytes of data, and holds it to every rule of the format: an object from its
/// first byte on, in UTF-8; each entry exactly a dtype, a shape and data_offsets; metadata of text; no name twice;
/// sizes that follow from type and shape; data without hole or overlap, to the end of the file. Two rules are stricter
/// than the format's: no further keys in an entry, and at most 64 extents. Throws FormatError with the file's name, the
/// array's, and the reason. Needs memory in proportion to the text alone.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_size, const std::string& file);

/// The text of a header.
std::string format_safetensors_header(const SafetensorsHeader& header);

}  // namespace xtape
