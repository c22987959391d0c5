#pragma once
// Analytic gradients against finite differences.
//
// The function is made scalar by a random projection of its output (a plain sum would hide errors: through softmax it
// has no gradient). For every element x of every input and parameter, central differences with the steps h, h/2 and
// h/4, Richardson's extrapolation (Richardson 1911), and as an error bar what the differences differ by, with the
// measured noise of the function: the verdict does not rest on a tolerance that someone guessed. A step that is too
// wide for the function is divided until the bar is narrow. Gradients are also computed on top of random numbers, so
// that an `=` in place of `+=` is seen.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <xtape/framework/nn/parameter_list.hpp>
#include <xtape/framework/tape/expr.hpp>

namespace xtape {

struct GradcheckOptions {
  std::uint64_t seed = 0;                 // of the inputs and the projection
  ParameterList<double> parameters = {};  // of a lambda; a module's own are found by its visit
};

enum class Verdict {
  ok,
  kink,               // one-sided slopes differ at some element; the analytic value lies between them
  mismatch,           // the analytic value lies outside the error bar
  no_gradient,        // no gradient arrived, though the output depends on the element
  does_not_add,       // the backward overwrites what stood in the gradient
  non_deterministic,  // two runs differ
  non_finite          // infinity or NaN in a gradient or difference
};
const char* to_string(Verdict verdict);

/// One input or parameter, with the element whose difference is the largest in error bars.
struct TensorReport {
  std::string name;
  Shape shape;
  Verdict verdict = Verdict::ok;
  std::size_t checked = 0, kinks = 0;
  Shape worst;  // index of the element
  double analytic = 0, numeric = 0, step = 0, bar = 0;
};

/// True if every tensor is ok, or a kink with the analytic value between the one-sided slopes. Prints as a table.
struct GradcheckReport {
  std::vector<TensorReport> tensors;
  explicit operator bool() const;
};
std::string to_string(const GradcheckReport& report);
std::ostream& operator<<(std::ostream& out, const GradcheckReport& report);

namespace detail {

using CheckedFunction = std::function<Var<double>(Tape<double>&, std::span<const Var<double>>)>;
GradcheckReport run_gradcheck(const CheckedFunction& f, const std::vector<Shape>& shapes,
                              std::vector<std::vector<double>> values, ParameterList<double> parameters,
                              std::uint64_t seed);
std::vector<double> normal_values(const Shape& shape, std::uint64_t seed, std::uint64_t stream);

inline constexpr std::size_t most_inputs = 8;
template <class F, class... Tapes, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, Tapes..., decltype((I, Var<double>()))...>;
}
/// True if f takes some number of Vars and no tape. To ask a generic lambda whether it takes a tape would compile its
/// body with one.
template <class F>
inline constexpr bool takes_no_tape = []<std::size_t... N>(std::index_sequence<N...>) {
  return (takes<F>(std::make_index_sequence<N>()) || ...);
}
(std::make_index_sequence<most_inputs + 1>());

template <class F, std::size_t... I>
Var<double> call_with(F& f, Tape<double>& tape, std::span<const Var<double>> x, std::index_sequence<I...> inputs) {
  if constexpr (takes<F>(inputs)) {
    return f(Var<double>(x[I])...);
  } else {
    if constexpr (!takes_no_tape<F>) {
      if constexpr (takes<F, Tape<double>&>(inputs)) return f(tape, Var<double>(x[I])...);
    }
    raise("[gradcheck] the function cannot be called with {} inputs", sizeof...(I));
  }
}
template <std::size_t N = 0, class F>
Var<double> call(F& f, Tape<double>& tape, std::span<const Var<double>> x) {
  if (x.size() == N) return call_with(f, tape, x, std::make_index_sequence<N>());
  if constexpr (N < most_inputs)
    return call<N + 1>(f, tape, x);
  else
    raise("[gradcheck] a function of at most {} inputs can be checked, got {}", most_inputs, x.size());
}

template <class F>
GradcheckReport gradcheck_values(F& f, const std::vector<Shape>& shapes, std::vector<std::vector<double>> values,
                                 GradcheckOptions&& options) {
  static_assert(Module<F> || !Module<std::remove_const_t<F>>, "the parameters of a const module cannot be varied");
  ParameterList<double> list;
  if constexpr (Module<F>) list = xtape::parameters<double>(f);
  for (auto& entry : options.parameters) list.push_back(std::move(entry));
  const auto erased = [&f](Tape<double>& tape, std::span<const Var<double>> x) { return call(f, tape, x); };
  return run_gradcheck(erased, shapes, std::move(values), std::move(list), options.seed);
}

}  // namespace detail

/// Checks f at random normal inputs of the given shapes. f takes that many Vars (up to 8), or a Tape<double>& and them,
/// and returns a Var; the parameters of a module are found by its visit, those of a lambda are given in the options.
template <class F>
GradcheckReport gradcheck(F&& f, std::vector<Shape> inputs, GradcheckOptions options = {}) {
  std::vector<std::vector<double>> values;
  for (const Shape& shape : inputs) values.push_back(detail::normal_values(shape, options.seed, values.size()));
  return detail::gradcheck_values(f, inputs, std::move(values), std::move(options));
}

/// The same at given inputs.
template <class F>
GradcheckReport gradcheck_at(F&& f, std::vector<xt::xarray<double>> inputs, GradcheckOptions options = {}) {
  std::vector<Shape> shapes;
  std::vector<std::vector<double>> values;
  for (const auto& x : inputs) {
    shapes.emplace_back(x.shape());
    values.emplace_back(x.begin(), x.end());
  }
  return detail::gradcheck_values(f, shapes, std::move(values), std::move(options));
}

}  // namespace xtape
