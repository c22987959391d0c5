#pragma once
// What backward claims of each tensor, and whether it says so twice and adds.

#include <xtape/framework/train/gradcheck/checked.hpp>

namespace xtape::detail {

struct Claimed {
  std::vector<Pair<std::vector<double>>> gradients;  // of each tensor, for both projections; zeros if there are none

  explicit Claimed(Checked& checked);

  /// What speaks against the backward of one tensor: non_deterministic, or mismatch for one that overwrites.
  struct Objection {
    Reason reason = Reason::ok;
    CheckedElement where = {};
    std::string note = {};
  };
  /// Runs backward once more, and once on top of other numbers; an objection for each tensor.
  std::vector<Objection> objections(Checked& checked) const;
};

/// What forward gives where the check begins: not ok if two runs differ or are not finite.
struct Outset {
  Reason reason = Reason::ok;
  std::string note = {};
  Middle middle = {};
};
Outset outset_of(Checked& checked);

}  // namespace xtape::detail
