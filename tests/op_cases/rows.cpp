#include "op_cases/case.hpp"

namespace xtape::op_cases {

void rows(std::vector<OpCase>& t) {
  for (const Shape& shape : any_shape) {
    if (shape.rank() == 0) continue;
    t.push_back({"softmax",
                 to_string(shape),
                 {shape},
                 both([](auto x) { return softmax(x[0]); }),
                 both([](auto x) { return reference::softmax(x[0]); }),
                 Domain::normal,
                 {{{}}}});
    t.push_back({"log_softmax",
                 to_string(shape),
                 {shape},
                 both([](auto x) { return log_softmax(x[0]); }),
                 both([](auto x) { return reference::log_softmax(x[0]); }),
                 Domain::normal,
                 {{{}}}});
    if (shape.back() < 2) continue;  // with one column layer_norm is constant
    t.push_back({"layer_norm",
                 to_string(shape),
                 {shape},
                 both([](auto x) { return layer_norm(x[0]); }),
                 both([](auto x) { return reference::layer_norm(x[0]); }),
                 Domain::normal,
                 {{{}}, {{3, 0}}}});
  }
  t.push_back({"softmax", "axis 0", {{3, 5}}, both([](auto x) { return softmax(x[0], 0); })});
  t.push_back({"softmax", "axis 1 of 4", {{2, 3, 2, 5}}, both([](auto x) { return softmax(x[0], 1); })});
  t.push_back({"log_softmax", "axis 1", {{2, 3, 5}}, both([](auto x) { return log_softmax(x[0], 1); })});
  for (const Shape& shape : std::vector<Shape>{{6}, {2, 6}, {3, 2, 17}, {70, 33}, {0, 6}, {1}}) {
    t.push_back({"rms_norm",
                 to_string(shape),
                 {shape, {shape.back()}},
                 both([](auto x) { return rms_norm(x[0], x[1]); }),
                 both([](auto x) { return reference::rms_norm(x[0]) * x[1]; }),
                 Domain::normal,
                 {{{2, 6}, {5}}, {{2, 6}, {1, 6}}, {{2, 0}, {0}}, {{}, {1}}}});
  }
  t.push_back({"rms_norm",
               "without gain, eps 0.1",
               {{2, 3, 5}},
               both([](auto x) { return rms_norm(x[0], std::nullopt, 0.1); }),
               both([](auto x) { return reference::rms_norm(x[0], 0.1); })});
  const auto affine = both([](auto x) { return layer_norm(x[0], x[1], x[2]); });
  const auto composed = both([](auto x) { return reference::layer_norm(x[0]) * x[1] + x[2]; });
  const std::vector<std::vector<Shape>> refused = {{{2, 6}, {5}, {6}}, {{2, 6}, {6}, {1, 6}}, {{2, 0}, {0}, {0}}};
  for (const Shape& shape : std::vector<Shape>{{6}, {2, 6}, {3, 2, 17}, {70, 33}, {0, 6}})
    t.push_back({"layer_norm",
                 to_string(shape) + " affine",
                 {shape, {shape.back()}, {shape.back()}},
                 affine,
                 composed,
                 Domain::normal,
                 refused});
  t.push_back(
      {"layer_norm", "gain alone", {{2, 6}, {6}}, both([](auto x) { return layer_norm(x[0], x[1]); }), both([](auto x) {
         return reference::layer_norm(x[0]) * x[1];
       })});
  t.push_back({"layer_norm",
               "bias alone",
               {{2, 6}, {6}},
               both([]<class T>(std::span<const Var<T>> x) { return layer_norm(x[0], std::nullopt, x[1]); }),
               both([](auto x) { return reference::layer_norm(x[0]) + x[1]; })});
}

}  // namespace xtape::op_cases
