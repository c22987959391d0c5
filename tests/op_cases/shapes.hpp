#pragma once

#include "op_cases/case.hpp"

namespace xtape::op_cases {

inline void shapes(std::vector<OpCase>& t) {
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
  t.push_back({"concat", "one twice", {{2, 3, 2}}, both([](auto x) { return concat({x[0], x[0]}, 1); })});
}

}  // namespace xtape::op_cases
