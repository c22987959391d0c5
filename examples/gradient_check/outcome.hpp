#pragma once
// What came of an entry's checks, as a line of the table, as a report of what failed, and as JSON.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gradient_check/entries.hpp"

namespace examples {

struct Outcome {
  std::string kind, name;
  std::vector<Checked> checks;
  std::size_t tensors = 0, elements = 0, kinks = 0, planted = 0;
  double worst = 0;  // largest difference in error bars
  bool passed = true;
  std::string verdict;  // "ok", or the reason of the first check that failed
};

Outcome run_entry(const Entry& entry, const CheckSettings& settings);

std::string table_head(const std::string& kind);
std::string table_line(const Outcome& outcome);
/// Those checks of an entry that failed: the first with the checker's whole report, the others by name.
std::string failure_text(const Outcome& outcome, std::size_t page_width);
/// "97 entries, 2,345 tensors, 67,890 elements: all ok"
std::string closing_text(const std::vector<Outcome>& outcomes);

/// {"seed", "samples", "passed", "entries": [{"kind", "name", "passed", "verdict", "checks": [{"variant",
/// "report"}]}]}, with what `break` planted, if anything.
nlohmann::ordered_json to_json(const std::vector<Outcome>& outcomes, const CheckSettings& settings);

}  // namespace examples
