#include <xtape/framework/train/replacement.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include <xtape/framework/base/error.hpp>

namespace xtape {

Replacement::Replacement(const std::filesystem::path& path, std::string who)
    : path_(path),
      who_(std::move(who)),
      temporary_(path.string() + ".writing." + std::to_string(::getpid())),
      file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  check(file_ >= 0);
}

Replacement::~Replacement() {
  if (file_ >= 0) ::close(file_);
  if (!done_) ::unlink(temporary_.c_str());
}

void Replacement::write(const void* data, std::size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = ::write(file_, at, size);
    if (written < 0 && errno == EINTR) continue;
    check(written >= 0);
    at += written;
    size -= static_cast<std::size_t>(written);
  }
}

void Replacement::finish() {
  check(::fsync(file_) == 0);
  const int file = std::exchange(file_, -1);
  check(::close(file) == 0);
  check(::rename(temporary_.c_str(), path_.c_str()) == 0);
  done_ = true;
  const std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  if (const int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); directory >= 0) {
    ::fsync(directory);  // makes the new name durable; the content already is
    ::close(directory);
  }
}

void Replacement::check(bool ok) const {
  if (!ok) throw Error(fmt::format("{}{} cannot be written: {}", who_, path_.string(), std::strerror(errno)));
}

void replace_file(const std::filesystem::path& path, const std::string& text, const std::string& who) {
  Replacement file(path, who);
  file.write(text.data(), text.size());
  file.finish();
}

}  // namespace xtape
