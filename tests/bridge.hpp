#pragma once
// PyTorch's side of the bridge: the files in tests/bridge, and the Python that made them, if it is installed.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "program.hpp"
#include "support.hpp"

namespace xtape {

inline const std::filesystem::path bridge_folder = std::filesystem::path(XTAPE_SOURCE_DIR) / "tests" / "bridge";

/// A Python that has a module: XTAPE_PYTHON, the one on the path, or Debian's; "" if none has.
inline std::string python_with(const std::string& module) {
  const char* chosen = std::getenv("XTAPE_PYTHON");
  for (const std::string python : {chosen != nullptr ? chosen : "python3", "/usr/bin/python3"})
    if (examples::run_program(python + " -c 'import " + module + "'").code == 0) return python;
  return "";
}

/// Runs a script of tests/bridge.
inline testing::AssertionResult succeeds(const std::string& python, const std::string& script_and_arguments) {
  const auto [code, output] = examples::run_program(python + " " + (bridge_folder / script_and_arguments).string());
  if (code == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << script_and_arguments << " ended with " << code << ":\n" << output;
}

/// error_between for the elements of a file.
inline double error_of(Var<float> x, const std::vector<float>& y) {
  const xt::xarray<float> numbers = xt::adapt(y);
  return error_between(xt::adapt(x.data(), x.size(), xt::no_ownership(), std::vector<std::size_t>{x.size()}), numbers);
}

}  // namespace xtape
