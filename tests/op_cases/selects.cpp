#include "op_cases/case.hpp"

namespace xtape::op_cases {
namespace {

/// Ones at the diagonal that runs from the upper right to the lower left: what flip multiplies with.
template <class T>
Var<T> flipped_last_axis(Var<T> x) {
  const std::size_t n = x.shape().back();
  xt::xarray<T> ones = xt::zeros<T>(std::vector<std::size_t>{n, n});
  for (std::size_t i = 0; i < n; ++i) ones(i, n - 1 - i) = 1;
  return reshape(matmul(reshape(x, {x.shape().rows(), n}), x.tape().input(ones)), x.shape());
}

}  // namespace

void selects(std::vector<OpCase>& t) {
  const xt::xarray<int> some = {1, 0, 1, 2};
  t.push_back(
      {"index_select",
       "repeated",
       {{3, 5}},
       both([=](auto x) { return index_select(x[0], 0, some); }),
       both([=](auto x) { return matmul(reference::one_hot(x[0].tape(), x[0].tape().integers(some), 3), x[0]); }),
       Domain::normal,
       {{{2, 5}}, {{}}}});
  t.push_back({"index_select", "middle axis", {{2, 3, 5}}, both([=](auto x) { return index_select(x[0], 1, some); })});
  t.push_back(
      {"index_select", "last axis", {{2, 1, 2, 3}}, both([=](auto x) { return index_select(x[0], -1, some); })});
  t.push_back({"index_select", "nothing", {{2, 3}}, both([](auto x) {
                 return index_select(x[0], 1, xt::xarray<int>(xt::zeros<int>(std::vector<std::size_t>{0})));
               })});
  const xt::xarray<int> places = {{0, 2, 2}, {1, 0, 1}};
  t.push_back({"gather",
               "last axis",
               {{2, 3}},
               both([=](auto x) { return gather(x[0], 1, places); }),
               both([=](auto x) {
                 const auto ones = reference::one_hot(x[0].tape(), x[0].tape().integers(places), 3);
                 return sum(ones * reshape(x[0], {2, 1, 3}), -1);
               }),
               Domain::normal,
               {{{3, 3}}, {{2, 2}}, {{2}}, {{2, 1, 3}}}});
  t.push_back({"gather", "first axis, fewer places", {{4, 3}}, both([=](auto x) { return gather(x[0], 0, places); })});
  t.push_back({"gather", "middle axis", {{1, 2, 5}}, both([](auto x) {
                 return gather(x[0], 1, xt::xarray<int>(xt::ones<int>(std::vector<std::size_t>{1, 3, 5})));
               })});
  for (const Shape& shape : any_shape)
    if (shape.rank() > 0)
      t.push_back({"flip",
                   to_string(shape),
                   {shape},
                   both([](auto x) { return flip(x[0], -1); }),
                   both([](auto x) { return flipped_last_axis(x[0]); }),
                   Domain::normal,
                   {{{}}}});
  t.push_back({"flip", "first axis", {{3, 2, 2}}, both([](auto x) { return flip(x[0], 0); })});
  // A constant takes part through what is multiplied with it.
  t.push_back({"one_hot",
               "times x",
               {{2, 3, 4}},
               both([=](auto x) { return one_hot(x[0].tape(), places, 4) * x[0]; }),
               both([=](auto x) { return reference::one_hot(x[0].tape(), x[0].tape().integers(places), 4) * x[0]; })});

  const auto chosen = [](const Shape& shape) {
    xt::xarray<bool> condition = xt::zeros<bool>(std::vector<std::size_t>(shape.begin(), shape.end()));
    for (std::size_t i = 0; i < condition.size(); ++i) condition.flat(i) = i % 3 != 1;
    return condition;
  };
  struct Three {
    Shape condition, a, b;
  };
  for (const Three& s : std::initializer_list<Three>{{{2, 3}, {2, 3}, {2, 3}},
                                                     {{3}, {2, 3}, {2, 1}},
                                                     {{2, 1}, {3}, {}},
                                                     {{4, 1, 3}, {2, 1, 1, 3}, {5, 1}},
                                                     {{}, {2}, {2}},
                                                     {{0, 3}, {3}, {1, 1}}}) {
    const xt::xarray<bool> condition = chosen(s.condition);
    t.push_back({"where",
                 to_string(s.condition) + to_string(s.a) + to_string(s.b),
                 {s.a, s.b},
                 both([=](auto x) { return where(condition, x[0], x[1]); }),
                 both([=]<class T>(std::span<const Var<T>> x) {
                   const Var<T> one = x[0].tape().input(xt::cast<T>(condition));
                   return one * x[0] + (1 - one) * x[1];
                 }),
                 Domain::normal,
                 {{{7}, {5}}}});
  }
  const xt::xarray<bool> condition = chosen({2, 3});
  t.push_back({"where", "number", {{2, 3}}, both([=](auto x) {
                 return where(condition, x[0], 2) + where(condition, 3, x[0]);
               })});
}

}  // namespace xtape::op_cases
