#include "op_cases/case.hpp"

namespace xtape::op_cases {

void shapes(std::vector<OpCase>& t) {
  t.push_back({"reshape",
               "",
               {{2, 6}},
               both([](auto x) {
                 return reshape(x[0], {3, 4});
               }),
               {},
               Domain::normal,
               {{{2, 5}}}});
  t.push_back({"reshape", "to scalar", {{1, 1}}, both([](auto x) { return reshape(x[0], {}); })});
  t.push_back({"reshape", "used beside its source", {{2, 3}}, both([](auto x) {
                 return reshape(x[0], {6}) * reshape(x[0] * x[0], {6});
               })});
  for (const Shape& shape : any_shape)
    t.push_back({"transpose", to_string(shape), {shape}, both([](auto x) { return transpose(x[0]); })});
  t.push_back({"transpose",
               "1 0 2",
               {{2, 3, 5}},
               both([](auto x) {
                 return transpose(x[0], {1, 0, 2});
               }),
               {},
               Domain::normal,
               {{{2, 3}}}});
  t.push_back({"transpose", "0 2 1 3", {{2, 3, 4, 5}}, both([](auto x) { return transpose(x[0], {0, 2, 1, 3}); })});
  t.push_back({"transpose", "-1 0 1", {{2, 3, 5}}, both([](auto x) { return transpose(x[0], {-1, 0, 1}); })});
  t.push_back({"slice",
               "first axis",
               {{4, 3}},
               both([](auto x) { return slice(x[0], 0, 1, 3); }),
               {},
               Domain::normal,
               {{{2, 3}}, {{}}}});
  t.push_back({"slice", "last axis", {{2, 3, 7}}, both([](auto x) { return slice(x[0], -1, 2, 5); })});
  t.push_back({"slice", "whole", {{2, 3}}, both([](auto x) { return slice(x[0], 0, 0, 2); })});
  t.push_back({"slice", "nothing", {{2, 3}}, both([](auto x) { return slice(x[0], 1, 1, 1); })});
  const std::vector<std::vector<Shape>> refused = {{{2, 3}, {2}, {2, 3}}, {{}, {}, {}}, {{2, 3}, {3, 4}, {2, 3}}};
  t.push_back({"concat",
               "first axis",
               {{2, 3}, {1, 3}, {0, 3}},
               both([](auto x) {
                 return concat({x[0], x[1], x[2]}, 0);
               }),
               {},
               Domain::normal,
               refused});
  t.push_back({"concat",
               "last axis",
               {{2, 3}, {2, 5}, {2, 1}},
               both([](auto x) {
                 return concat({x[0], x[1], x[2]}, -1);
               }),
               {},
               Domain::normal,
               refused});
  const std::vector<std::vector<Shape>> unlike = {{{2, 3}, {2}}, {{2, 3}, {3, 2}}, {{1, 2, 1, 2}, {1, 2, 1, 2}}};
  for (const int axis : {0, 1, -1})
    t.push_back({"stack",
                 fmt::format("axis {}", axis),
                 {{2, 3}, {2, 3}},
                 both([=](auto x) {
                   return stack({x[0], x[1]}, axis);
                 }),
                 both([=](auto x) {
                   const Shape wider = axis == 0 ? Shape{1, 2, 3} : axis == 1 ? Shape{2, 1, 3} : Shape{2, 3, 1};
                   return concat({reshape(x[0], wider), reshape(x[1], wider)}, axis);
                 }),
                 Domain::normal,
                 unlike});
  t.push_back({"stack", "three", {{2, 3}, {2, 3}, {2, 3}}, both([](auto x) { return stack({x[0], x[1], x[2]}, 0); })});
  t.push_back({"stack", "scalars", {{}, {}}, both([](auto x) { return stack({x[0], x[1], x[0]}, 0); })});
  t.push_back({"split",
               "by extents",
               {{2, 7}},
               both([](auto x) {
                 const auto [a, b, c] = split(x[0], {4, 0, 3}, -1);
                 return concat({c, b, a * a}, -1);
               }),
               both([](auto x) {
                 const auto a = slice(x[0], 1, 0, 4);
                 return concat({slice(x[0], 1, 4, 7), a * a}, 1);
               }),
               Domain::normal,
               {{{2, 6}}, {{}}}});
  t.push_back({"split",
               "into equal parts",
               {{6, 2}},
               both([](auto x) {
                 const auto [a, b, c] = split<3>(x[0], 0);
                 return a * b - c;
               }),
               both([](auto x) { return slice(x[0], 0, 0, 2) * slice(x[0], 0, 2, 4) - slice(x[0], 0, 4, 6); }),
               Domain::normal,
               {{{7, 2}}, {{}}}});
  t.push_back(
      {"pad",
       "last axis",
       {{2, 3}},
       both([](auto x) { return pad(x[0], -1, 2, 1, 0.5); }),
       both([]<class T>(std::span<const Var<T>> x) {
         Tape<T>& tape = x[0].tape();
         const Var<T> left = tape.input(T(0.5) * xt::ones<T>({2, 2})), right = tape.input(T(0.5) * xt::ones<T>({2, 1}));
         return concat({left, x[0], right}, 1);
       }),
       Domain::normal,
       {{{}}}});
  t.push_back({"pad", "first axis", {{2, 3, 2}}, both([](auto x) { return pad(x[0], 0, 1, 0); })});
  t.push_back({"pad", "by nothing", {{3}}, both([](auto x) { return pad(x[0], 0, 0, 0); })});
  t.push_back({"pad", "nothing", {{0, 2}}, both([](auto x) { return pad(x[0], 0, 1, 2); })});
  // That no gradient passes is tested apart, since finite differences do not know it.
  t.push_back(
      {"detach", "of what does not depend on x", {{2, 3}}, both([](auto x) { return detach(0 * x[0] + 2) * x[0]; })});
  t.push_back({"concat", "one twice", {{2, 3, 2}}, both([](auto x) { return concat({x[0], x[0]}, 1); })});
}

}  // namespace xtape::op_cases
