#include <xtape/framework/train/gradcheck/own_backward.hpp>

#include <algorithm>
#include <cmath>

#include <xtape/framework/train/gradcheck/checked.hpp>
#include <xtape/framework/train/gradcheck/same_bits.hpp>

namespace xtape::detail {
namespace {

constexpr std::uint64_t own_prefill_stream = 7 << 20;

/// Increments of the gradients of an op's inputs.
using Increments = std::vector<std::vector<double>>;

/// Runs the op's callback alone with projection p from above. Where `prefill` is empty the gradients of the inputs are
/// untouched before, else they hold these numbers.
Increments increments(Record& record, const RecordedOp& op, std::size_t p, const Increments& prefill = {}) {
  Tape<double>& tape = record.tape;
  const double* w = record.weights(p);
  for (const Var<double> y : op.outputs) {
    double* upstream = tape.slot(y).data;
    for (std::size_t k = 0, n = y.size(); k < n; ++k, ++w) upstream[k] = std::isfinite(y.data()[k]) ? *w : 0;
  }
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    tape.forget_grad(op.inputs[i].x);
    if (!prefill.empty()) std::copy(prefill[i].begin(), prefill[i].end(), tape.slot(op.inputs[i].x).data);
  }
  tape.backward_alone(op.outputs[0]);
  Increments result;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const auto [data, touched] = tape.slot(op.inputs[i].x);
    std::vector<double>& increment = result.emplace_back(op.inputs[i].x.size());
    for (std::size_t k = 0; touched && k < increment.size(); ++k)
      increment[k] = data[k] - (prefill.empty() ? 0 : prefill[i][k]);
    tape.forget_grad(op.inputs[i].x);
  }
  for (const Var<double> y : op.outputs) tape.forget_grad(y);
  return result;
}

/// Index of the first element for which the predicate holds; n if there is none.
std::size_t first_where(std::size_t n, auto&& predicate) {
  std::size_t k = 0;
  while (k < n && !predicate(k)) ++k;
  return k;
}

}  // namespace

KeptParameterGradients::KeptParameterGradients(Tape<double>& tape) : tape_(tape) {
  for (std::size_t place = 0; place < tape.size(); ++place) {
    const Var<double> x = tape.at(place);
    if (x.op() != std::string_view("parameter") || !x.requires_grad()) continue;
    const auto [data, had_grad] = tape.slot(x);
    grads_.emplace_back(x, had_grad ? std::vector<double>(data, data + x.size()) : std::vector<double>());
    if (!had_grad) tape.forget_grad(x);
  }
}

KeptParameterGradients::~KeptParameterGradients() {
  for (const auto& [x, grad] : grads_) {
    tape_.forget_grad(x);
    if (!grad.empty()) std::copy(grad.begin(), grad.end(), tape_.slot(x).data);
  }
}

std::vector<Suspect> run_own_backward(Record& record, RecordedOp& op, std::uint64_t seed) {
  Increments prefill;
  for (const OpInput& input : op.inputs)
    prefill.push_back(normal_values(input.x.size(), seed, own_prefill_stream + prefill.size()));
  Pair<Increments> fresh;
  for (std::size_t p = 0; p < projections; ++p) fresh[p] = increments(record, op, p);
  const Increments again = increments(record, op, 0), added = increments(record, op, 0, prefill);

  std::vector<Suspect> suspects;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    OpInput& input = op.inputs[i];
    for (std::size_t p = 0; p < projections; ++p) input.gradient[p] = std::move(fresh[p][i]);
    const std::vector<double>& g = input.gradient[0];
    const std::size_t n = g.size();
    const auto suspect = [&](std::size_t k, double analytic, Reason reason) {
      suspects.push_back({&op, &input, k, analytic, reason});
    };
    constexpr std::size_t enough = 8;  // some may be infinite by right, as that of sqrt at 0
    for (std::size_t p = 0; p < projections; ++p)
      for (std::size_t k = 0, found = 0; k < n && found < enough; ++k)
        if (!std::isfinite(input.gradient[p][k])) suspect(k, input.gradient[p][k], Reason::non_finite), ++found;
    const auto differs = [&](std::size_t k) { return !same_bits(g[k], again[i][k]); };
    const auto overwrites = [&](std::size_t k) {
      return std::abs(added[i][k] - g[k]) > 1e-10 * (std::abs(prefill[i][k]) + std::abs(g[k]));
    };
    if (const std::size_t k = first_where(n, differs); k < n)
      suspect(k, again[i][k], Reason::non_deterministic);
    else if (const std::size_t j = first_where(n, overwrites); j < n)
      suspect(j, added[i][j], Reason::mismatch);
  }
  return suspects;
}

}  // namespace xtape::detail
