#include "op_cases/table.hpp"

namespace xtape {

std::string to_string(const OpCase& c) { return c.name + " " + c.variant; }

namespace op_cases {

const std::vector<OpCase>& table() {
  static const std::vector<OpCase> rows_of_table = [] {
    std::vector<OpCase> t;
    for (const auto add : {elementwise, reductions, products, shapes, rows, selects, tokens, losses, attention}) add(t);
    return t;
  }();
  return rows_of_table;
}

std::vector<xt::xarray<double>> random_inputs(const std::vector<Shape>& shapes, std::uint64_t seed, Domain domain) {
  std::vector<xt::xarray<double>> inputs;
  for (const Shape& shape : shapes) {
    Rng rng(seed * 100 + inputs.size());
    auto& x = inputs.emplace_back(xt::zeros<double>(std::vector<std::size_t>(shape.begin(), shape.end())));
    for (double& element : x) {
      element = rng.normal();
      if (domain == Domain::positive) element = 0.5 + 2 / (1 + std::exp(-element));
      if (domain == Domain::off_kinks && std::abs(element) < 0.1) element += element < 0 ? -0.1 : 0.1;
    }
  }
  return inputs;
}

std::vector<xt::xarray<double>> inputs_of(const OpCase& c, std::uint64_t seed) {
  return random_inputs(c.inputs, seed, c.domain);
}

}  // namespace op_cases
}  // namespace xtape
