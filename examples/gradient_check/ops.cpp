#include <algorithm>

#include "gradient_check/entries.hpp"
#include "op_cases/table.hpp"

namespace examples {

std::vector<Entry> op_entries() {
  std::vector<Entry> entries;
  for (const xtape::OpCase& row : xtape::op_cases::table()) {
    auto entry = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.name == row.name; });
    if (entry == entries.end()) entry = entries.insert(entry, {"op", row.name, {}});
    entry->checks.push_back({row.variant, [&row](const CheckSettings& settings) {
                               const auto f = [&](auto&, auto x) { return row.op.in_double(x); };
                               return check(f, xtape::op_cases::inputs_of(row, settings.seed), {}, settings);
                             }});
  }
  return entries;
}

}  // namespace examples
