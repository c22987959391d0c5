#pragma once
// Runs a program as a user does, and reads what it prints.

#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

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

/// Runs a program with its flags on a terminal of its own, in colour. What it prints.
inline std::string run_on_a_terminal(std::vector<const char*> arguments) {
  arguments.push_back(nullptr);
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::unsetenv("NO_COLOR");
    ::execv(arguments[0], const_cast<char**>(arguments.data()));
    ::_exit(127);
  }
  const std::string output = read_all(terminal);
  ::waitpid(child, nullptr, 0);
  ::close(terminal);
  return output;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace examples
