#pragma once
// What keeps a file from filling a model.

#include <string>
#include <vector>

namespace xtape {

struct Misfit {
  std::vector<std::string> missing, extra;  // names
  std::vector<std::string> misshapen;       // "weight must be (2, 3), got (3, 2)"
  /// "missing: a, b; not in the model: c; of another shape: ..."; "" if nothing is wrong. Extra names come from the
  /// file, so no more than a hundred of them are listed, each as an excerpt.
  std::string text() const;
};

}  // namespace xtape
