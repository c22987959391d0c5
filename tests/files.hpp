#pragma once
// Files for tests: a folder that vanishes with the test, raw bytes, and hand-made safetensors files.

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support.hpp"

namespace xtape {

/// A new empty folder, removed at the end of the block.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "xtape_test_XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "cannot make a temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  /// How many files and folders it holds.
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::remove(path);  // some file systems flush a file that is overwritten
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// A little-endian 64-bit number, as the first eight bytes of a safetensors file.
inline std::string length_field(std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i) & 0xFF));
  return bytes;
}

/// A safetensors file of the given header and data.
inline std::string safetensors(const std::string& header, const std::string& data = {}) {
  return length_field(header.size()) + header + data;
}

}  // namespace xtape
