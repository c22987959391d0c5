#pragma once
// One line about a run in progress: rewritten in place on a terminal, printed as it is elsewhere.

#include <chrono>
#include <string>

namespace examples {

class Progress {
 public:
  Progress();
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  bool on_terminal() const { return terminal_; }
  /// How wide a page may be: as wide as the terminal, at least 80 columns, and 100 columns elsewhere.
  std::size_t page_width() const;
  /// True when the line on a terminal is due again (ten times a second).
  bool due() const;
  void show(const std::string& line);
  /// Lines that stay, in whole length.
  void print(const std::string& lines);
  /// Leaves the line as it stands and goes to the next.
  void finish();
  /// Takes the line away again, so that something else can be printed in its place.
  void erase();

 private:
  bool terminal_, open_ = false;
  std::size_t width_ = 0;
  std::chrono::steady_clock::time_point last_{};
};

/// "0:07", "12:34" or "1:02:03"
std::string duration_text(double seconds);
/// "1,234,567", for numbers that are not negative
std::string grouped(double number);

/// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace examples
