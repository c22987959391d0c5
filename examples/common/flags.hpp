#pragma once
// What flags of numbers have in common.

#include <CLI/CLI.hpp>

namespace examples {

/// Refuses nan and inf, which would pass for numbers.
inline CLI::Validator a_number() {
  return CLI::Validator(
      [](std::string& text) {
        return text.find_first_of("nN") == std::string::npos ? "" : "Value " + text + " is no number";
      },
      "");
}

}  // namespace examples
