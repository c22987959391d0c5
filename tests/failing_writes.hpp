#pragma once
// Disks that are full, processes that die while they write, and folders that may not be written.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "support.hpp"

namespace xtape {

/// While it lives no file of this process can grow beyond the given size, as on a disk that is full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

/// Runs f in a process of its own that is killed by the first write beyond so many bytes of a file. Whether it was.
template <class F>
bool dies_after(rlim_t bytes, F&& f) {
  const pid_t child = ::fork();
  if (child == 0) {  // the signal of the limit ends the process in the middle of a write
    const rlimit none{0, 0}, limit{bytes, bytes};
    ::setrlimit(RLIMIT_CORE, &none);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_DFL);
    f();
    ::_exit(0);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFSIGNALED(status);
}

/// The superuser may write everywhere, so while this lives he is nobody.
struct WithoutPrivileges {
  const uid_t before = ::geteuid();
  WithoutPrivileges() { EXPECT_EQ(before == 0 ? ::seteuid(65534) : 0, 0); }
  ~WithoutPrivileges() { EXPECT_EQ(::seteuid(before), 0); }
};

}  // namespace xtape
