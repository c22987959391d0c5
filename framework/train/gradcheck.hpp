#pragma once
// Analytic gradients against finite differences.
//
// The function is made scalar by two random projections of its output (a plain sum would hide errors: through softmax
// it has no gradient); each call of it serves both. Every element of every input and parameter is moved up and down by
// two steps, and the derivative is extrapolated from these four calls, with an estimated error bar: the verdict does
// not rest on a tolerance that someone guessed (gradcheck/difference.hpp tells how). Gradients are computed twice, and
// once on top of other numbers, so that an `=` in place of `+=` is seen. If the check fails, the ops of the function
// are tried one by one, and the report names those whose own backward is wrong.

#include <cstdint>
#include <vector>

#include <xtape/framework/nn/parameter_list.hpp>
#include <xtape/framework/tape/expr.hpp>
#include <xtape/framework/train/gradcheck/float.hpp>
#include <xtape/framework/train/gradcheck/run.hpp>
#include <xtape/framework/train/gradcheck_report.hpp>

namespace xtape {

struct GradcheckOptions {
  std::uint64_t seed = 0;                 // of the inputs, the projections and what is sampled
  ParameterList<double> parameters = {};  // of a lambda; a module's own are found by its visit
  std::size_t samples = 0;     // elements of a tensor; 0: all of up to 1000, of a larger tensor 100; the one with the
                               // largest gradient is always among them
  std::size_t directions = 2;  // random ones through each tensor of which only a sample is checked: where one
                               // disagrees, it is halved until the wrong element is found
  bool blame = true;           // if the check fails, find the op that is wrong
};

struct GradcheckFloatOptions {
  std::uint64_t seed = 0;
  ParameterList<float> parameters = {};  // of lambdas: the same names in both lists
  ParameterList<double> parameters_in_double = {};
  std::size_t runs = 8;  // of the float function, from whose spread the error bar is estimated
};

namespace detail {

template <class T, class F>
ParameterList<T> parameters_of(F& f, ParameterList<T> further) {
  static_assert(Module<F> || !Module<std::remove_const_t<F>>, "the parameters of a const module cannot be varied");
  ParameterList<T> list;
  if constexpr (Module<F>) list = xtape::parameters<T>(f);
  for (auto& entry : further) list.push_back(std::move(entry));
  return list;
}

template <class F>
Subject subject_of(F& f, const std::vector<Shape>& shapes, const GradcheckOptions& options) {
  return {.f = erased<double>(f, shapes.size()),
          .shapes = shapes,
          .values = normal_inputs(shapes, options.seed),
          .parameters = parameters_of<double>(f, options.parameters)};
}
inline Settings settings_of(const GradcheckOptions& options) {
  return {.seed = options.seed, .samples = options.samples, .directions = options.directions, .blame = options.blame};
}

}  // namespace detail

/// Checks f at random normal inputs of the given shapes. f takes that many Vars (up to 8), or a Tape<double>& and them,
/// and returns a Var; the parameters of a module are found by its visit, those of a lambda are given in the options.
/// A function that throws, that changes its inputs, its parameters or the shape of its output is reported as such.
/// Throws Error if f cannot be called with so many inputs.
template <class F>
GradcheckReport gradcheck(F&& f, std::vector<Shape> inputs, GradcheckOptions options = {}) {
  return detail::run_gradcheck(detail::subject_of(f, inputs, options), detail::settings_of(options));
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
  detail::Subject subject = detail::subject_of(f, shapes, options);
  subject.values = std::move(values);
  return detail::run_gradcheck(subject, detail::settings_of(options));
}

/// A check of a whole model for the price of a few forward passes: all inputs and parameters are moved at once along
/// random directions. Where one disagrees, each tensor is moved by itself, and the report has a line for each that is
/// wrong beside the one for all.
template <class F>
GradcheckReport gradcheck_directions(F&& f, std::vector<Shape> inputs, GradcheckOptions options = {}) {
  return detail::run_gradcheck_directions(detail::subject_of(f, inputs, options), detail::settings_of(options));
}

/// The gradients of a function in float against those of the same function in double, at random normal inputs. Modules
/// have the same parameter names; those of the double one are set to the values of the float one, and put back. A
/// generic lambda may stand for both. See gradcheck/float.hpp for the error bar.
template <class F, class D>
GradcheckReport gradcheck_float(F&& in_float, D&& in_double, std::vector<Shape> inputs,
                                GradcheckFloatOptions options = {}) {
  return detail::run_gradcheck_float(
      {.in_float = detail::erased<float>(in_float, inputs.size()),
       .in_double = detail::erased<double>(in_double, inputs.size()),
       .shapes = inputs,
       .parameters = detail::parameters_of<float>(in_float, options.parameters),
       .parameters_in_double = detail::parameters_of<double>(in_double, options.parameters_in_double)},
      options.seed, options.runs);
}

}  // namespace xtape
