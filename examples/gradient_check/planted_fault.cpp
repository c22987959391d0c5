#include "gradient_check/planted_fault.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <xtape/framework/tape/tape.hpp>

namespace examples {
namespace {

using xtape::Var;
using Values = std::vector<double>;
using Callback = std::function<void()>;

/// The memory of a gradient, zero-filled on first touch.
std::span<double> gradient(Var<double> x) {
  const auto [data, touched] = x.tape().slot(x);
  if (!touched) std::fill_n(data, x.size(), 0.0);
  return {data, x.size()};
}

std::vector<std::span<double>> gradients(const std::vector<Var<double>>& values) {
  std::vector<std::span<double>> result;
  for (const Var<double> x : values)
    if (x.requires_grad()) result.push_back(gradient(x));
  return result;
}

/// What the callback adds to one gradient. All gradients are left as they were.
Values increment(Var<double> y, std::span<double> of, const Callback& run) {
  const auto inputs = gradients(y.tape().inputs(y));
  std::vector<Values> before;
  for (const auto input : inputs) before.emplace_back(input.begin(), input.end());
  for (const auto input : inputs) std::fill(input.begin(), input.end(), 0.0);
  run();
  const Values added(of.begin(), of.end());
  for (std::size_t i = 0; i < inputs.size(); ++i) std::copy(before[i].begin(), before[i].end(), inputs[i].begin());
  return added;
}

Values with_outputs_of_one(Var<double> y, std::span<double> of, const Callback& run) {
  const auto outputs = gradients(y.tape().outputs(y));
  std::vector<Values> before;
  for (const auto output : outputs) {
    before.emplace_back(output.begin(), output.end());
    std::fill(output.begin(), output.end(), 1.0);
  }
  const Values added = increment(y, of, run);
  for (std::size_t i = 0; i < outputs.size(); ++i) std::copy(before[i].begin(), before[i].end(), outputs[i].begin());
  return added;
}

/// True if some number is off by more than rounding.
bool differ(const Values& a, const Values& b) {
  double size = 0, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    size = std::max(size, std::abs(b[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return difference > 1e-6 * size;
}

/// Without the contribution of the first element, from the middle of the output on, that has one.
Values without_one_term(Var<double> y, std::span<double> of, const Callback& run, const Values& right) {
  constexpr std::size_t most_tries = 32;
  const auto output = gradient(y);
  for (std::size_t i = 0; i < std::min(output.size(), most_tries); ++i) {
    double& term = output[(output.size() / 2 + i) % output.size()];
    const double before = std::exchange(term, 0.0);
    const Values added = increment(y, of, run);
    term = before;
    if (differ(added, right)) return added;
  }
  return right;
}

Values transposed(const Values& x, const xtape::Shape& shape) {
  if (shape.rank() < 2) return x;
  const std::size_t columns = shape.back(), rows = shape[shape.rank() - 2], matrix = rows * columns;
  Values result(x.size());
  for (std::size_t k = 0; k < x.size(); ++k) {
    const std::size_t row = k % matrix / columns, column = k % columns;
    result[k / matrix * matrix + column * rows + row] = x[k];
  }
  return result;
}

constexpr std::array<std::pair<const char*, const char*>, all_faults.size()> texts = {{
    {"factor", "1.01 times the gradient"},
    {"sign", "the gradient with the wrong sign"},
    {"element", "one element off by 0.001"},
    {"overwrite", "= in place of +="},
    {"upstream", "the gradient from above taken for 1"},
    {"term", "one element of the output left out"},
    {"transposed", "the last two axes exchanged"},
    {"zeros", "zeros"},
    {"nan", "NaN in one element"},
    {"noise", "noise of 0.001, another at every run"},
    {"none", "no gradient at all"},
}};

}  // namespace

const char* to_string(Fault fault) { return texts[static_cast<std::size_t>(fault)].first; }
const char* description(Fault fault) { return texts[static_cast<std::size_t>(fault)].second; }

std::optional<Fault> fault_named(std::string_view name) {
  for (const Fault fault : all_faults)
    if (name == to_string(fault)) return fault;
  return {};
}

void PlantedFault::backward(Var<double> y, const Callback& run) {
  if (y.op() != op_) return run();
  const auto inputs = y.tape().inputs(y);
  const auto argument = std::find_if(inputs.begin() + std::min(argument_, inputs.size()), inputs.end(),
                                     [](Var<double> x) { return x.requires_grad() && x.size() > 0; });
  if (argument == inputs.end()) return run();
  ++times_;
  if (fault_ == Fault::none) return;

  const std::span<double> target = gradient(*argument);
  Values added = increment(y, target, run);
  Values before(target.begin(), target.end());
  double& element = added[changed_element(added.size())];
  if (fault_ == Fault::factor)
    for (double& x : added) x *= 1.01;
  if (fault_ == Fault::sign)
    for (double& x : added) x = -x;
  if (fault_ == Fault::element) element += 1e-3;
  if (fault_ == Fault::overwrite) std::fill(before.begin(), before.end(), 0.0);
  if (fault_ == Fault::upstream) added = with_outputs_of_one(y, target, run);
  if (fault_ == Fault::term) added = without_one_term(y, target, run, added);
  if (fault_ == Fault::transposed) added = transposed(added, argument->shape());
  if (fault_ == Fault::zeros) std::fill(added.begin(), added.end(), 0.0);
  if (fault_ == Fault::nan) element = std::numeric_limits<double>::quiet_NaN();
  if (fault_ == Fault::noise)
    for (double& x : added) x += 1e-3 * noise_.normal();
  run();  // for all other gradients
  for (std::size_t i = 0; i < added.size(); ++i) target[i] = before[i] + added[i];
}

}  // namespace examples
