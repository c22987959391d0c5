#include "op_cases/case.hpp"

namespace xtape::op_cases {

void reductions(std::vector<OpCase>& t) {
  for (const Shape& shape : any_shape) {
    t.push_back({"sum", to_string(shape), {shape}, both([](auto x) { return sum(x[0]); })});
    if (shape.size() > 0) t.push_back({"mean", to_string(shape), {shape}, both([](auto x) { return mean(x[0]); })});
    if (shape.size() > 0) t.push_back({"max", to_string(shape), {shape}, both([](auto x) { return max(x[0]); })});
    if (shape.size() > 1) t.push_back({"var", to_string(shape), {shape}, both([](auto x) { return var(x[0]); })});
  }
  struct Some {
    const char* text;
    Axes axes;
    Shape shape;
  };
  for (const Some& s : std::initializer_list<Some>{{"axis 0", {0}, {3, 5}},
                                                   {"axis -1", {-1}, {3, 5}},
                                                   {"axes 0 and 2", {0, 2}, {2, 3, 5}},
                                                   {"axes 1 and 3", {1, 3}, {2, 3, 4, 5}},
                                                   {"axes 2 and 0", {2, 0}, {2, 3, 4, 5}},
                                                   {"axis 1 wide", {1}, {2, 70, 37}},
                                                   {"no axis", {}, {2, 3}},
                                                   {"empty", {0}, {0, 3}}}) {
    for (const bool keep : {false, true}) {
      const std::string text = std::string(s.text) + (keep ? " kept" : "");
      t.push_back({"sum", text, {s.shape}, both([s, keep](auto x) { return sum(x[0], s.axes, keep); })});
      if (s.shape.size() > 0)
        t.push_back({"mean",
                     text,
                     {s.shape},
                     both([s, keep](auto x) { return mean(x[0], s.axes, keep); }),
                     both([s, keep](auto x) { return reference::mean(x[0], s.axes, keep); })});
      if (s.shape.size() == 0) continue;
      t.push_back({"max", text, {s.shape}, both([s, keep](auto x) { return max(x[0], s.axes, keep); })});
      if (s.axes.count() == 0) continue;
      for (const double correction : {0.0, 1.0})
        t.push_back({"var",
                     text,
                     {s.shape},
                     both([=](auto x) { return var(x[0], s.axes, keep, correction); }),
                     both([=](auto x) { return reference::var(x[0], s.axes, keep, correction); })});
    }
  }
  for (const Shape& shape : any_shape) {
    if (shape.rank() == 0) continue;
    t.push_back({"cumsum",
                 to_string(shape),
                 {shape},
                 both([](auto x) { return cumsum(x[0], -1); }),
                 both([](auto x) { return reference::cumsum(x[0]); }),
                 Domain::normal,
                 {{{}}}});
    t.push_back({"cumsum", "axis 0 of " + to_string(shape), {shape}, both([](auto x) { return cumsum(x[0], 0); })});
  }
  t.push_back({"max",
               "of nothing refused",
               {{2}},
               both([](auto x) { return max(x[0]); }),
               {},
               Domain::normal,
               {{{0}}, {{2, 0}}}});
  t.push_back(
      {"var", "of one refused", {{2}}, both([](auto x) { return var(x[0]); }), {}, Domain::normal, {{{}}, {{1}}}});
  t.push_back({"sum",
               "axis out of range",
               {{2}},
               both([](auto x) { return sum(x[0], {x[0].shape().rank() == 1 ? 0 : 4}); }),
               {},
               Domain::normal,
               {{{2, 3}}}});
  t.push_back({"mean",
               "of nothing refused",
               {{2}},
               both([](auto x) { return mean(x[0]); }),
               {},
               Domain::normal,
               {{{0}}, {{2, 0}}}});
}

}  // namespace xtape::op_cases
