#include "common/progress.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace examples {

namespace {

/// Columns of the terminal. A longer line would wrap, and could not be rewritten in place.
std::size_t columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress() : terminal_(::isatty(STDOUT_FILENO) == 1) {}

std::size_t Progress::page_width() const { return terminal_ ? std::max<std::size_t>(80, columns()) : 100; }

bool Progress::due() const {
  return terminal_ && std::chrono::steady_clock::now() - last_ > std::chrono::milliseconds(100);
}

void Progress::show(const std::string& line) {
  last_ = std::chrono::steady_clock::now();
  if (terminal_) {
    const std::string shown = line.substr(0, columns() - 1);
    fmt::print("\r{:<{}}", shown, width_);  // blanks cover what is left of a longer line
    width_ = shown.size();
    open_ = true;
  } else {
    fmt::print("{}\n", line);
  }
  std::fflush(stdout);
}

void Progress::print(const std::string& lines) {
  erase();
  fmt::print("{}\n", lines);
  std::fflush(stdout);
}

void Progress::finish() {
  if (open_) fmt::print("\n");
  open_ = false;
  width_ = 0;
}

void Progress::erase() {
  if (open_) fmt::print("\r{:<{}}\r", "", width_);
  open_ = false;
  width_ = 0;
}

std::string duration_text(double seconds) {
  const long total = std::lround(std::max(0.0, seconds));
  const long hours = total / 3600, minutes = total / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60)
                   : fmt::format("{}:{:02}", minutes, total % 60);
}

std::string grouped(double number) {
  const std::string digits = fmt::format("{:.0f}", std::max(0.0, number));
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace examples
