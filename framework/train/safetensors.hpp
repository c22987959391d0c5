#pragma once
// Arrays in files of the safetensors format: a length, a JSON header, raw little-endian data
// (https://github.com/huggingface/safetensors, "Format").

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <xtape/framework/nn/parameter_list.hpp>

namespace xtape {

/// Free text that travels with a file.
using Metadata = std::map<std::string, std::string>;

/// A file opened for reading. The header is checked whole (sizes, offsets without hole or overlap, exact end of the
/// file) before anything is allocated by it; a file that is cut or wrong is a FormatError with the file's name and the
/// reason.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(std::filesystem::path path);

  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return tensors_.count(name) > 0; }
  const Metadata& metadata() const { return metadata_; }
  /// "F64", "F32", "I64", "I32", "I16", "I8", "U8" or "BOOL" for what can be read.
  const std::string& dtype(const std::string& name) const { return tensor(name).dtype; }
  const std::vector<std::size_t>& shape(const std::string& name) const { return tensor(name).shape; }
  /// The elements, converted: floats for T = float or double, integers and booleans for T = std::int64_t.
  template <class T>
  std::vector<T> read(const std::string& name) const;

 private:
  struct Tensor {
    std::string dtype;
    std::vector<std::size_t> shape;
    std::uint64_t begin, end;  // in the data part
  };
  const Tensor& tensor(const std::string& name) const;
  std::vector<char> bytes(const Tensor& tensor) const;

  std::filesystem::path path_;
  std::map<std::string, Tensor> tensors_;
  Metadata metadata_;
  std::uint64_t data_begin_ = 0;
};

/// One array to be written.
struct NamedArray {
  std::string name;
  Shape shape;
  std::variant<std::span<const float>, std::span<const double>, std::span<const std::int64_t>> data;
};
/// Writes a file beside `path`, flushes it to disk and renames it, so that `path` holds the old content or the new,
/// never a part. Throws Error with the file's name if that fails.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedArray>& arrays,
                       const Metadata& metadata = {});

template <class T>
void save_safetensors(const std::filesystem::path& path, const ParameterList<T>& list, const Metadata& metadata = {});

struct LoadOptions {
  bool strict = true;  // false: names that only one side has are passed over
};
/// Fills the parameters from a file of the same names and shapes. All names that are missing, extra or of another shape
/// stand in one FormatError, and then no parameter is changed.
template <class T>
void load_safetensors(const std::filesystem::path& path, const ParameterList<T>& list, LoadOptions options = {});

}  // namespace xtape
