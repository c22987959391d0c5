// Where an infinity or NaN came from: a search of the record, for values and for gradients.

#include <algorithm>
#include <cmath>
#include <vector>

#include <xtape/framework/tape/tape.hpp>

namespace xtape {
namespace {

/// Index of the first infinity or NaN; n if there is none.
template <class T>
std::size_t first_non_finite(const T* x, std::size_t n) {
  return static_cast<std::size_t>(std::find_if(x, x + n, [](T v) { return !std::isfinite(v); }) - x);
}
/// The same, where -inf passes.
template <class T>
std::size_t first_beyond_minus_infinity(const T* x, std::size_t n) {
  return static_cast<std::size_t>(
      std::find_if(x, x + n, [](T v) { return std::isnan(v) || (v > 0 && std::isinf(v)); }) - x);
}

}  // namespace

template <class T>
NonFinite<T> Tape<T>::non_finite_at(std::uint32_t holder, std::size_t index, const T* numbers) {
  const Node& owner = nodes_[nodes_[holder].owner];
  NonFinite<T> found{handle(holder), index, numbers[index], owner.input_count == 0, {}, {}, {}};
  if (owner.parameter >= 0) found.parameter = parameters_[static_cast<std::size_t>(owner.parameter)].share();
  return found;
}

template <class T>
std::optional<NonFinite<T>> Tape<T>::find_non_finite(Var<T> y) {
  const auto last = static_cast<std::uint32_t>(y.ticket_.node);
  check(y, "find_non_finite");
  // What each value holds at the worst. Masks and integers have no value here, and are finite.
  enum class Worst : std::uint8_t { unknown, finite, minus_infinity, beyond };
  std::vector<Worst> memory(last + 1, Worst::unknown);
  const auto worst = [&](std::uint32_t i) {
    if (memory[i] != Worst::unknown) return memory[i];
    const T* value = nodes_[i].value;
    const std::size_t n = value == nullptr ? 0 : nodes_[i].shape.size();
    memory[i] = first_non_finite(value, n) == n              ? Worst::finite
                : first_beyond_minus_infinity(value, n) == n ? Worst::minus_infinity
                                                             : Worst::beyond;
    return memory[i];
  };
  if (worst(last) == Worst::finite) return {};

  // From y back along values that are not finite. What is left in each of these is the earliest one.
  std::optional<std::uint32_t> origin, hiding, beyond;
  std::vector<bool> led_to_y(last + 1);
  led_to_y[last] = true;
  for (std::uint32_t i = last + 1; i-- > 0;) {
    if (!led_to_y[i]) continue;
    const Node& node = nodes_[i];
    bool inputs_are_finite = true;
    for (std::uint32_t k = 0; k < node.input_count; ++k) {
      if (worst(node.inputs[k]) == Worst::finite) continue;
      led_to_y[node.inputs[k]] = true;
      inputs_are_finite = false;
    }
    if (worst(i) == Worst::beyond) beyond = i;
    if (!inputs_are_finite) continue;
    const bool may_hide = node.input_count == 0 && worst(i) == Worst::minus_infinity;
    (may_hide ? hiding : origin) = i;
  }
  const std::uint32_t holder = origin ? *origin : beyond ? *beyond : *hiding;
  const T* value = nodes_[holder].value;
  const std::size_t n = nodes_[holder].shape.size(), index = first_beyond_minus_infinity(value, n);
  NonFinite<T> found = non_finite_at(holder, index < n ? index : first_non_finite(value, n), value);
  if (!origin && hiding && *hiding != holder) found.hiding = handle(*hiding);
  return found;
}

/// A guard: takes the gradients of leaves and parameters away, and puts them back as they were.
template <class T>
class Tape<T>::KeptGradients {
 public:
  explicit KeptGradients(Tape& tape) : tape_(tape) {
    for (std::size_t i = 0; i < tape.nodes_.size(); ++i) {
      Node& node = tape.nodes_[i];
      if (node.is_output || node.gradient != Gradient::present) continue;
      leaves_.emplace_back(i, std::vector<T>(node.grad, node.grad + node.shape.size()));
      tape.release_gradient(node);
      node.gradient = Gradient::none;
    }
    for (const Parameter<T>& each : tape.parameters_) {
      const auto same = [&](const auto& kept) { return kept.first.is(each); };
      if (std::any_of(parameters_.begin(), parameters_.end(), same)) continue;
      Parameter<T> parameter = each.share();
      std::vector<T> grad;
      if (parameter.has_grad()) grad.assign(parameter.grad_data(), parameter.grad_data() + parameter.size());
      had_grad_.push_back(parameter.has_grad());
      parameters_.emplace_back(std::move(parameter), std::move(grad));
      parameters_.back().first.zero_grad();
    }
  }
  KeptGradients(const KeptGradients&) = delete;
  KeptGradients& operator=(const KeptGradients&) = delete;
  ~KeptGradients() {
    for (Node& node : tape_.nodes_) {
      if (node.is_output || node.gradient != Gradient::present) continue;
      tape_.release_gradient(node);
      node.gradient = Gradient::none;
    }
    for (const auto& [i, grad] : leaves_) std::copy(grad.begin(), grad.end(), tape_.zeroed_gradient(tape_.nodes_[i]));
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto& [parameter, grad] = parameters_[i];
      if (had_grad_[i])
        std::copy(grad.begin(), grad.end(), parameter.touch_grad_data());
      else
        parameter.zero_grad();
    }
  }

 private:
  Tape& tape_;
  std::vector<std::pair<std::size_t, std::vector<T>>> leaves_;
  std::vector<std::pair<Parameter<T>, std::vector<T>>> parameters_;
  std::vector<bool> had_grad_;
};

template <class T>
std::optional<NonFinite<T>> Tape<T>::find_non_finite_gradient(Var<T> scalar) {
  require<ShapeError>(scalar.size() == 1, "[find_non_finite_gradient] expected a scalar, got shape {}", scalar.shape());
  // What leads on to a parameter whose gradient is not finite.
  std::vector<bool> matters(nodes_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (node.parameter >= 0) {
      Parameter<T>& parameter = parameters_[static_cast<std::size_t>(node.parameter)];
      const std::size_t n = parameter.has_grad() ? parameter.size() : 0;
      matters[i] = n > 0 && first_non_finite(parameter.grad_data(), n) < n;
    }
    for (std::uint32_t k = 0; k < node.input_count; ++k) matters[i] = matters[i] || matters[node.inputs[k]];
  }

  const KeptGradients kept(*this);
  std::optional<NonFinite<T>> found;
  begin_backward(scalar);
  *zeroed_gradient(gradient_owner(scalar)) += T(1);
  for (std::size_t i = scalar.ticket_.node + 1; i-- > 0;) {
    if (!run_callback(i)) continue;
    const Node& user = nodes_[i];
    for (std::uint32_t k = 0; k < user.input_count && !found; ++k) {
      Node& owner = nodes_[nodes_[user.inputs[k]].owner];
      const bool touched = owner.parameter >= 0 ? parameters_[static_cast<std::size_t>(owner.parameter)].has_grad()
                                                : owner.gradient == Gradient::present;
      if (!matters[user.inputs[k]] || !touched) continue;
      const T* grad = zeroed_gradient(owner);
      const std::size_t n = owner.shape.size(), index = first_non_finite(grad, n);
      if (index == n) continue;
      found = non_finite_at(user.inputs[k], index, grad);
      found->passed_by = handle(i);
    }
    release_outputs(nodes_[i]);
  }
  return found;
}

template std::optional<NonFinite<float>> Tape<float>::find_non_finite(Var<float>);
template std::optional<NonFinite<double>> Tape<double>::find_non_finite(Var<double>);
template std::optional<NonFinite<float>> Tape<float>::find_non_finite_gradient(Var<float>);
template std::optional<NonFinite<double>> Tape<double>::find_non_finite_gradient(Var<double>);

}  // namespace xtape
