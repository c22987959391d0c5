#pragma once
// Files read through the memory of the process.

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace xtape {

/// The bytes of a file, which the system reads as they are looked at. They stay those of the file that was opened if
/// another takes its name. Throws FormatError, whose sentence begins with `who`, if it cannot be read.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path, std::string who = "");
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
  /// All bytes. Throws FormatError if the file has become shorter since it was opened. Who cuts it between this call
  /// and the look at the bytes ends the process, by SIGBUS: a file in use is to be replaced rather than written over.
  std::span<const std::byte> bytes() const;

 private:
  [[noreturn]] void fail(const std::string& reason) const;
  std::filesystem::path path_;
  std::string who_;
  int file_;
  void* begin_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace xtape
