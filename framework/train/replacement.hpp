#pragma once
// Files that are replaced whole or not at all.

#include <cstddef>
#include <filesystem>
#include <string>

namespace xtape {

/// The new content of a file. It is written to a temporary beside it, which takes its place at finish() and is removed
/// otherwise. Throws Error, whose sentence begins with `who`, if the file cannot be written; the old one is then left
/// as it was.
class Replacement {
 public:
  explicit Replacement(const std::filesystem::path& path, std::string who = "");
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;
  ~Replacement();
  void write(const void* data, std::size_t size);
  /// Flushes the content to the disk and gives it the file's name.
  void finish();

 private:
  void check(bool ok) const;
  std::filesystem::path path_;
  std::string who_, temporary_;
  int file_;
  bool done_ = false;
};

/// Writes a whole file in this way.
void replace_file(const std::filesystem::path& path, const std::string& text, const std::string& who = "");

}  // namespace xtape
