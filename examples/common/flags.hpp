#pragma once
// The flags of a command line. CLI11 stands behind them and is included by flags.cpp alone: every file that includes it
// compiles two thousand functions.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace examples {

struct Anything {};
/// A number from the least to the greatest.
template <class T>
struct Range {
  T least, greatest;
};
/// One of these words.
struct OneOf {
  std::vector<std::string> words;
};
/// What a value may be, besides of the variable's type.
using Allowed = std::variant<Anything, Range<int>, Range<double>, OneOf>;

struct FlagOptions {
  Allowed allowed = {};
  bool required = false;
  bool show_default = true;  // in --help, unless it is empty
  std::string needs = {};    // the flag without which this one may not be given
};

/// A value goes into the variable that its flag was added with, which must live until parse. A name that does not begin
/// with "--" is that of a value without a flag.
class Flags {
 public:
  Flags(const std::string& description, const std::string& program);
  ~Flags();

  /// T is bool, int, std::size_t, double (a finite one), std::string, or std::vector<std::string> or
  /// std::vector<std::int64_t>, which take all values that follow.
  template <class T>
  void add(const std::string& name, T& variable, const std::string& help, const FlagOptions& options = {});
  /// A flag that may stand alone: then the variable is "".
  void add_with_or_without_value(const std::string& name, std::optional<std::string>& variable,
                                 const std::string& value, const std::string& help);
  /// True if the flag is given. "=false" may follow it.
  void add_switch(const std::string& name, bool& variable, const std::string& help);
  /// `read` makes what it likes of the value. It throws xtape::Error where it is none, with what comes after "--name:
  /// ".
  void add_read(const std::string& name, std::function<void(const std::string&)> read, const std::string& shown_default,
                const std::string& help);

  /// As if the flag had been given this value, unless it is. Throws xtape::Error, "name: Value 0 not in range 1 to 9".
  void set_default(const std::string& name, const std::string& value);

  /// Reads the command line. After --help, or an error that was explained on stderr: the exit code to leave with.
  std::optional<int> parse(int argc, char** argv);
  /// Reads those flags that were added, and lets all others be. Throws xtape::Error.
  void parse_known(int argc, char** argv);

  /// The names of the flags that the command line had, in the order in which they were added.
  std::vector<std::string> given() const;
  bool given(const std::string& name) const;

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace examples
