#pragma once
// Runs a program as a user does, and reads what it prints.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

namespace examples {

struct Finished {
  int code;
  std::string output;  // of both streams
};

/// All that can be read from a descriptor.
inline std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = ::read(descriptor, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(n));
  return text;
}

/// Runs a command in a shell, its output in a pipe.
inline Finished run_program(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  const std::string output = read_all(::fileno(pipe));
  return {WEXITSTATUS(::pclose(pipe)), output};
}

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace examples
