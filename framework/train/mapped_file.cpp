#include <xtape/framework/train/mapped_file.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <xtape/framework/base/error.hpp>

namespace xtape {

MappedFile::MappedFile(const std::filesystem::path& path, std::string who)
    : path_(path), who_(std::move(who)), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (file_ < 0) fail(std::strerror(errno));
  struct stat status {};
  std::string reason;
  if (::fstat(file_, &status) != 0) {
    reason = std::strerror(errno);
  } else if (!S_ISREG(status.st_mode)) {
    reason = "it is not a regular file";
  } else if (status.st_size > 0) {
    size_ = static_cast<std::size_t>(status.st_size);
    begin_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file_, 0);
    if (begin_ == MAP_FAILED) reason = std::strerror(errno);
  }
  if (reason.empty()) return;
  ::close(file_);  // no destructor runs for what was not made
  fail(reason);
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(begin_, size_);
  ::close(file_);
}

std::span<const std::byte> MappedFile::bytes() const {
  struct stat status {};
  if (::fstat(file_, &status) != 0) fail(std::strerror(errno));
  if (static_cast<std::size_t>(status.st_size) < size_)
    fail(fmt::format("it had {} bytes when it was opened, and now has {}", size_, status.st_size));
  return {static_cast<const std::byte*>(begin_), size_};
}

void MappedFile::fail(const std::string& reason) const {
  throw FormatError(fmt::format("{}{} cannot be read: {}", who_, path_.string(), reason));
}

}  // namespace xtape
