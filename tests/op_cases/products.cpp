#include "op_cases/case.hpp"

namespace xtape::op_cases {
namespace {

void einsums(std::vector<OpCase>& t) {
  const auto push = [&](const char* pattern, std::vector<Shape> shapes, OpPair op, OpPair reference,
                        std::vector<std::vector<Shape>> refused = {}) {
    t.push_back({"einsum", pattern, shapes, op, reference, Domain::normal, refused});
  };
  push("ij,jk->ik", {{3, 4}, {4, 5}}, both([](auto x) { return einsum("ij,jk->ik", x[0], x[1]); }),
       both([](auto x) { return matmul(x[0], x[1]); }), {{{3, 4}, {3, 5}}, {{3}, {3, 5}}, {{3, 4}, {4, 5, 1}}});
  push("bqhd,bkhd->bhqk", {{2, 3, 2, 5}, {2, 4, 2, 5}},
       both([](auto x) { return einsum("bqhd,bkhd->bhqk", x[0], x[1]); }), both([](auto x) {
         return matmul(transpose(x[0], {0, 2, 1, 3}), transpose(x[1], {0, 2, 3, 1}));
       }));
  push("bhqk,bkhd->bqhd", {{2, 2, 3, 4}, {2, 4, 2, 5}},
       both([](auto x) { return einsum("bhqk,bkhd->bqhd", x[0], x[1]); }), both([](auto x) {
         return transpose(matmul(x[0], transpose(x[1], {0, 2, 1, 3})), {0, 2, 1, 3});
       }));
  push("bi,oij,bj->bo", {{2, 3}, {4, 3, 5}, {2, 5}},
       both([](auto x) { return einsum("bi,oij,bj->bo", x[0], x[1], x[2]); }), both([](auto x) {
         const auto left = matmul(x[0], x[1]);  // (o, b, j)
         return transpose(sum(left * x[2], -1));
       }));
  push("i,j->ji", {{3}, {4}}, both([](auto x) { return einsum("i,j->ji", x[0], x[1]); }), both([](auto x) {
         return reshape(x[1], {4, 1}) * x[0];
       }));
  push("bij,bij->b", {{2, 3, 4}, {2, 3, 4}}, both([](auto x) { return einsum("bij,bij->b", x[0], x[1]); }),
       both([](auto x) {
         return sum(x[0] * x[1], {1, 2});
       }));
  push("ijkl->lj", {{2, 3, 4, 5}}, both([](auto x) { return einsum("ijkl->lj", x[0]); }), both([](auto x) {
         return transpose(sum(x[0], {0, 2}));
       }));
  push("ij,k->i", {{2, 3}, {4}}, both([](auto x) { return einsum("ij,k->i", x[0], x[1]); }),
       both([](auto x) { return sum(x[0], 1) * sum(x[1]); }));
}

void linears_with_gelu(std::vector<OpCase>& t) {
  const auto push = [&](const char* name, std::vector<Shape> shapes, OpPair op, OpPair reference) {
    t.push_back({name,
                 to_string(shapes[0]),
                 shapes,
                 op,
                 reference,
                 Domain::normal,
                 {{{2, 5}, {3, 4}, {3}}, {{2, 5}, {3, 5}, {4}}, {{2, 5}, {5}, {3}}, {{}, {3, 5}, {3}}}});
  };
  const auto exact = both([](auto x) { return linear_gelu(x[0], x[1], x[2]); });
  const auto composed = both([](auto x) { return reference::linear_gelu(x[0], x[1], x[2]); });
  for (const auto& [x, out] : std::vector<std::pair<Shape, std::size_t>>{
           {{2, 3, 5}, 9}, {{2, 1, 3, 1}, 1}, {{67, 2}, 3}, {{513, 2}, 3}, {{0, 5}, 3}})
    push("linear_gelu", {x, {out, x.back()}, {out}}, exact, composed);
  push("linear_gelu_tanh", {{2, 3, 5}, {9, 5}, {9}}, both([](auto x) { return linear_gelu_tanh(x[0], x[1], x[2]); }),
       both([](auto x) { return reference::linear_gelu_tanh(x[0], x[1], x[2]); }));
  t.push_back({"linear_gelu",
               "without bias",
               {{2, 3, 5}, {4, 5}},
               both([](auto x) { return linear_gelu(x[0], x[1]); }),
               both([](auto x) { return gelu(reference::linear(x[0], x[1])); })});
}

}  // namespace

void products(std::vector<OpCase>& t) {
  const auto op = both([](auto x) { return matmul(x[0], x[1]); });
  const std::vector<std::vector<Shape>> refused = {{{2, 3}, {4, 5}}, {{}, {2}}, {{2, 3, 4}, {3, 4, 5}}, {{3}, {4}}};
  for (const auto& [a, b] : std::vector<std::pair<Shape, Shape>>{{{3, 4}, {4, 5}},
                                                                 {{1, 1}, {1, 1}},
                                                                 {{1, 4}, {4, 7}},
                                                                 {{7, 4}, {4, 1}},
                                                                 {{2, 3, 4}, {4, 5}},
                                                                 {{2, 3, 4}, {2, 4, 5}},
                                                                 {{3, 4}, {2, 4, 5}},
                                                                 {{2, 1, 3, 4}, {3, 4, 2}},
                                                                 {{1, 2, 3, 4}, {5, 1, 4, 2}},
                                                                 {{4}, {4}},
                                                                 {{4}, {4, 3}},
                                                                 {{3, 4}, {4}},
                                                                 {{2, 3, 4}, {4}},
                                                                 {{0, 4}, {4, 3}},
                                                                 {{3, 0}, {0, 2}},
                                                                 {{0, 3, 4}, {4, 2}},
                                                                 {{33, 17}, {17, 19}}})
    t.push_back({"matmul", to_string(a) + to_string(b), {a, b}, op, {}, Domain::normal, refused});
  const auto reference_with = both([](auto x) { return reference::linear(x[0], x[1], x[2]); });
  const auto reference_without = both([](auto x) { return reference::linear(x[0], x[1]); });
  for (const auto& [x, out] : std::vector<std::pair<Shape, std::size_t>>{
           {{5}, 3}, {{2, 5}, 1}, {{2, 3, 5}, 4}, {{2, 1, 3, 1}, 7}, {{2, 260, 2}, 3}, {{0, 5}, 3}}) {
    const std::size_t in = x.back();
    if (x.rank() > 1) {
      t.push_back({"linear",
                   to_string(x) + " with bias",
                   {x, {out, in}, {out}},
                   both([](auto v) { return linear(v[0], v[1], v[2]); }),
                   reference_with,
                   Domain::normal,
                   {{{2, 5}, {3, 4}, {3}}, {{2, 5}, {3, 5}, {4}}, {{2, 5}, {5}, {3}}, {{}, {3, 5}, {3}}}});
      t.push_back({"linear",
                   to_string(x) + " without bias",
                   {x, {out, in}},
                   both([](auto v) { return linear(v[0], v[1]); }),
                   reference_without});
    } else {
      t.push_back({"linear", to_string(x), {x, {out, in}}, both([](auto v) { return linear(v[0], v[1]); })});
    }
  }
  linears_with_gelu(t);
  einsums(t);
}

}  // namespace xtape::op_cases
