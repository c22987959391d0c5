#pragma once
// The table of ops: every op of ops.hpp stands in one of the files of op_cases/, in several shapes. op_table_test.cpp
// runs the same checks over all rows.

#include "op_cases/attention.hpp"
#include "op_cases/elementwise.hpp"
#include "op_cases/losses.hpp"
#include "op_cases/products.hpp"
#include "op_cases/reductions.hpp"
#include "op_cases/rows.hpp"
#include "op_cases/selects.hpp"
#include "op_cases/shapes.hpp"
#include "op_cases/tokens.hpp"

namespace xtape::op_cases {

inline const std::vector<OpCase>& table() {
  static const std::vector<OpCase> rows_of_table = [] {
    std::vector<OpCase> t;
    elementwise(t);
    reductions(t);
    products(t);
    shapes(t);
    rows(t);
    selects(t);
    tokens(t);
    losses(t);
    attention(t);
    return t;
  }();
  return rows_of_table;
}

}  // namespace xtape::op_cases
