#pragma once
// Named arrays in files of the safetensors format.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <xtape/framework/base/shape.hpp>
#include <xtape/framework/train/mapped_file.hpp>
#include <xtape/framework/train/safetensors_elements.hpp>
#include <xtape/framework/train/safetensors_header.hpp>

namespace xtape {

/// A file opened for reading. The header is checked whole (see parse_safetensors_header) before anything is allocated
/// by it; a file that is cut or wrong is a FormatError with the file's name and the reason. It stays what it was when
/// another file takes its name.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  /// In alphabetical order.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return header_.arrays.contains(name); }
  const Metadata& metadata() const { return header_.metadata; }
  /// The type's name: "F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8" or "BOOL" for what can be read.
  const std::string& dtype(const std::string& name) const { return to_string(array(name).dtype); }
  const std::vector<std::size_t>& shape(const std::string& name) const { return array(name).shape; }
  /// The elements, converted: floats for T = float or double, integers and booleans for T = std::int64_t. Throws
  /// FormatError with the names of file and array for another type, for a BOOL that is neither 0 nor 1, and if the file
  /// has become shorter.
  template <class T>
  std::vector<T> read(const std::string& name) const;

 private:
  const StoredArray& array(const std::string& name) const;

  std::string path_;
  std::shared_ptr<const MappedFile> file_;
  SafetensorsHeader header_;
  std::size_t data_begin_ = 0;
};

/// One array to be written.
struct NamedArray {
  std::string name;
  Shape shape;
  std::variant<std::span<const float>, std::span<const double>, std::span<const std::int64_t>> data;
  std::optional<Dtype> dtype = {};  // F64, F32, F16 or BF16 for floats; by default what the data are
};

/// Writes a file beside `path`, flushes it to disk and renames it, so that `path` holds the old content or the new,
/// never a part. Each number is rounded once to the nearest of the file's type; what is too large for F16 (from 65,520
/// on), BF16 or F32 becomes infinity, as IEEE 754 says. Throws Error with the file's name if that fails, and if an
/// array does not have the size of its shape, a name comes twice, or names and metadata are not UTF-8.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedArray>& arrays,
                       const Metadata& metadata = {});

/// The bytes of such a file, a piece at a time; `file` is its name in messages.
void encode_safetensors(const std::vector<NamedArray>& arrays, const Metadata& metadata, const std::string& file,
                        const ByteSink& sink);

}  // namespace xtape
