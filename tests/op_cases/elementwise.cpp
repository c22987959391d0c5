#include "op_cases/case.hpp"

namespace xtape::op_cases {
namespace {

/// A row for each shape.
void unary(std::vector<OpCase>& table, const char* name, OpPair op, Domain domain = Domain::normal,
           OpPair reference = {}) {
  for (const Shape& shape : any_shape) table.push_back({name, to_string(shape), {shape}, op, reference, domain});
}

void binary(std::vector<OpCase>& table, const char* name, OpPair op, Domain domain = Domain::normal,
            OpPair reference = {}) {
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
    table.push_back(
        {name, to_string(a) + to_string(b), {a, b}, op, reference, domain, {{{2, 3}, {4}}, {{2, 3}, {3, 2}}}});
}

}  // namespace

void elementwise(std::vector<OpCase>& t) {
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
  unary(t, "gelu_tanh", both([](auto x) { return gelu_tanh(x[0]); }), Domain::normal,
        both([](auto x) { return reference::gelu_tanh(x[0]); }));
  unary(t, "log1p", both([](auto x) { return log1p(x[0]); }), Domain::positive,
        both([](auto x) { return log(1 + x[0]); }));
  unary(t, "sqrt", both([](auto x) { return sqrt(x[0]); }), Domain::positive,
        both([](auto x) { return reference::square_root(x[0]); }));
  unary(t, "rsqrt", both([](auto x) { return rsqrt(x[0]); }), Domain::positive,
        both([](auto x) { return 1 / reference::square_root(x[0]); }));
  unary(t, "square", both([](auto x) { return square(x[0]); }), Domain::normal,
        both([](auto x) { return x[0] * x[0]; }));
  unary(t, "abs", both([](auto x) { return abs(x[0]); }), Domain::off_kinks,
        both([](auto x) { return reference::absolute(x[0]); }));
  unary(t, "sin", both([](auto x) { return sin(x[0]); }), Domain::normal,
        both([](auto x) { return cos(x[0] - std::acos(0.0)); }));
  unary(t, "cos", both([](auto x) { return cos(x[0]); }), Domain::normal,
        both([](auto x) { return sin(x[0] + std::acos(0.0)); }));
  unary(t, "sigmoid", both([](auto x) { return sigmoid(x[0]); }), Domain::normal,
        both([](auto x) { return reference::sigmoid(x[0]); }));
  unary(t, "silu", both([](auto x) { return silu(x[0]); }), Domain::normal,
        both([](auto x) { return reference::silu(x[0]); }));
  unary(t, "softplus", both([](auto x) { return softplus(x[0]); }), Domain::normal,
        both([](auto x) { return reference::softplus(x[0]); }));
  unary(t, "clamp", both([](auto x) { return clamp(x[0], 0, 10); }), Domain::off_kinks,
        both([](auto x) { return relu(x[0]); }));
  unary(t, "clamp", both([](auto x) { return clamp(x[0], -10, 0); }), Domain::off_kinks,
        both([](auto x) { return -relu(-x[0]); }));
  binary(t, "pow", both([](auto x) { return pow(x[0], x[1]); }), Domain::positive,
         both([](auto x) { return exp(x[1] * log(x[0])); }));
  unary(t, "pow", both([](auto x) { return pow(x[0], 3); }), Domain::normal,
        both([](auto x) { return x[0] * x[0] * x[0]; }));
  unary(t, "pow", both([](auto x) { return pow(x[0], -0.5); }), Domain::positive,
        both([](auto x) { return rsqrt(x[0]); }));
  binary(t, "maximum", both([](auto x) { return maximum(x[0], x[1]); }), Domain::normal,
         both([](auto x) { return reference::maximum(x[0], x[1]); }));
  binary(t, "minimum", both([](auto x) { return minimum(x[0], x[1]); }), Domain::normal,
         both([](auto x) { return reference::minimum(x[0], x[1]); }));
  unary(t, "maximum", both([](auto x) { return maximum(x[0], 0); }), Domain::off_kinks,
        both([](auto x) { return relu(x[0]); }));
  binary(t, "swiglu", both([](auto x) { return swiglu(x[0], x[1]); }), Domain::normal,
         both([](auto x) { return reference::silu(x[0]) * x[1]; }));
}

}  // namespace xtape::op_cases
