#pragma once

#include "op_cases/case.hpp"

namespace xtape::op_cases {

/// A row for each shape.
inline void unary(std::vector<OpCase>& table, const char* name, OpPair op, Domain domain = Domain::normal) {
  for (const Shape& shape : any_shape) table.push_back({name, to_string(shape), {shape}, op, {}, domain});
}

inline void binary(std::vector<OpCase>& table, const char* name, OpPair op, Domain domain = Domain::normal) {
  const std::vector<std::pair<Shape, Shape>> shapes = {{{}, {}},
                                                       {{5}, {5}},
                                                       {{2, 3}, {}},
                                                       {{}, {2, 3}},
                                                       {{2, 1}, {1, 3}},
                                                       {{2, 3}, {3}},
                                                       {{3}, {2, 3}},
                                                       {{2, 3, 1, 5}, {4, 1}},
                                                       {{2, 1, 5}, {3, 1}},
                                                       {{4, 1, 3, 2}, {4, 1, 3, 2}},
                                                       {{0, 3}, {3}},
                                                       {{2, 1, 17}, {2, 3, 1}},
                                                       {{1, 1}, {2, 33}}};
  for (const auto& [a, b] : shapes)
    table.push_back({name, to_string(a) + to_string(b), {a, b}, op, {}, domain, {{{2, 3}, {4}}, {{2, 3}, {3, 2}}}});
}

inline void elementwise(std::vector<OpCase>& t) {
  binary(t, "add", both([](auto x) { return x[0] + x[1]; }));
  binary(t, "subtract", both([](auto x) { return x[0] - x[1]; }));
  binary(t, "multiply", both([](auto x) { return x[0] * x[1]; }));
  binary(t, "divide", both([](auto x) { return x[0] / x[1]; }), Domain::positive);
  t.push_back({"add", "number", {{2, 3}}, both([](auto x) { return 2 + x[0] + 0.5; })});
  t.push_back({"subtract", "number", {{2, 3}}, both([](auto x) { return 2 - (x[0] - 0.5); })});
  t.push_back({"multiply", "number", {{2, 3}}, both([](auto x) { return 2 * x[0] * 1.5; })});
  t.push_back({"divide", "number", {{2, 3}}, both([](auto x) { return 2 / x[0] / 1.5; }), {}, Domain::positive});
  unary(t, "negate", both([](auto x) { return -x[0]; }));
  unary(t, "exp", both([](auto x) { return exp(x[0]); }));
  unary(t, "log", both([](auto x) { return log(x[0]); }), Domain::positive);
  unary(t, "tanh", both([](auto x) { return tanh(x[0]); }));
  unary(t, "relu", both([](auto x) { return relu(x[0]); }), Domain::off_kinks);
  unary(t, "gelu", both([](auto x) { return gelu(x[0]); }));
}

}  // namespace xtape::op_cases
