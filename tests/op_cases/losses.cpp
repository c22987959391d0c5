#include "op_cases/case.hpp"

namespace xtape::op_cases {
namespace {

/// A row for each reduction and each kind of target; `loss(x, target, reduction)` and its composed form.
template <class Loss, class Reference>
void loss(std::vector<OpCase>& t, const char* name, Loss loss, Reference reference, Domain domain) {
  const std::vector<std::vector<Shape>> refused = {{{3, 1}, {3}}, {{2, 3}, {3, 2}}, {{2, 3}, {3}}};
  for (const auto& [text, reduction] :
       {std::pair("mean", Reduction::mean), std::pair("sum", Reduction::sum), std::pair("none", Reduction::none)}) {
    const auto op = both([=, reduction = reduction](auto x) { return loss(x[0], x[1], reduction); });
    const auto composed = both([=, reduction = reduction](auto x) { return reference(x[0], x[1], reduction); });
    for (const auto& [x, target] :
         std::vector<std::pair<Shape, Shape>>{{{2, 3, 5}, {2, 3, 5}}, {{17}, {17}}, {{2, 3}, {}}, {{}, {}}})
      t.push_back(
          {name, std::string(text) + to_string(x) + to_string(target), {x, target}, op, composed, domain, refused});
  }
  t.push_back({name,
               "mean of nothing refused",
               {{2}, {2}},
               both([=](auto x) { return loss(x[0], x[1], Reduction::mean); }),
               {},
               domain,
               {{{0}, {0}}}});
  t.push_back(
      {name, "sum of nothing", {{0, 3}, {0, 3}}, both([=](auto x) { return loss(x[0], x[1], Reduction::sum); })});
}

void cross_entropy_rows(std::vector<OpCase>& t) {
  static const std::vector<double> class_weights = {1, 0.5, 0, 2, 0.25};
  const xt::xarray<int> targets = {{2, -100, 0}, {4, 4, -100}};
  for (const auto& [text, options] : std::vector<std::pair<const char*, CrossEntropyOptions>>{
           {"mean", {}},
           {"sum", {.reduction = Reduction::sum}},
           {"none", {.reduction = Reduction::none}},
           {"smoothed", {.label_smoothing = 0.1}},
           {"smoothed, each row", {.label_smoothing = 0.1, .reduction = Reduction::none}},
           {"weighted", {.class_weights = class_weights}},
           {"weighted, smoothed", {.label_smoothing = 0.3, .class_weights = class_weights}},
           {"weighted, smoothed, each row",
            {.label_smoothing = 0.3, .reduction = Reduction::none, .class_weights = class_weights}}})
    t.push_back({"cross_entropy",
                 text,
                 {{2, 3, 5}},
                 both([=, options = options](auto x) { return cross_entropy(x[0], targets, options); }),
                 both([=, options = options](auto x) {
                   return reference::cross_entropy(x[0], x[0].tape().integers(targets), options);
                 }),
                 Domain::normal,
                 {{{2, 4, 5}}, {{3, 5}}, {{}}, {{2, 3, 4}}}});
  const xt::xarray<int> ignored = {-100, -100};
  t.push_back(
      {"cross_entropy", "nothing counts", {{2, 5}}, both([=](auto x) { return cross_entropy(x[0], ignored); })});
}

}  // namespace

void losses(std::vector<OpCase>& t) {
  cross_entropy_rows(t);
  loss(
      t, "mse", [](auto x, auto y, Reduction r) { return mse(x, y, r); },
      [](auto x, auto y, Reduction r) { return reference::mse(x, y, r); }, Domain::normal);
  loss(
      t, "l1", [](auto x, auto y, Reduction r) { return l1(x, y, r); },
      [](auto x, auto y, Reduction r) { return reference::l1(x, y, r); }, Domain::normal);
  loss(
      t, "bce_with_logits", [](auto x, auto y, Reduction r) { return bce_with_logits(x, y, r); },
      [](auto x, auto y, Reduction r) { return reference::bce_with_logits(x, y, r); }, Domain::normal);
  loss(
      t, "kl_div", [](auto x, auto y, Reduction r) { return kl_div(x, y, r); },
      [](auto x, auto y, Reduction r) { return reference::kl_div(x, y, r); }, Domain::positive);
}

}  // namespace xtape::op_cases
