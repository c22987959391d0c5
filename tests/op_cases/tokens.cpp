#include "op_cases/case.hpp"

namespace xtape::op_cases {

void tokens(std::vector<OpCase>& t) {
  const xt::xarray<int> some = {{1, 0, 3}, {3, 3, 6}}, none = xt::zeros<int>(std::vector<std::size_t>{0, 3});
  for (const auto& [text, indices] : {std::pair("repeated", some), std::pair("none", none)})
    t.push_back(
        {"embedding",
         text,
         {{7, 5}},
         both([indices = indices](auto x) { return embedding(x[0], indices); }),
         both([indices = indices](auto x) { return reference::embedding(x[0], x[0].tape().integers(indices)); }),
         Domain::normal,
         {{{7}},
          {
              {3, 5},
          }}});
  t.back().refused.pop_back();  // no token at all is out of range
  t.push_back({"dropout", "half", {{5, 7}}, both([](auto x) { return dropout(x[0], 0.5); })});
  t.push_back({"dropout", "all", {{5, 7}}, both([](auto x) { return dropout(x[0], 1); })});
}

}  // namespace xtape::op_cases
