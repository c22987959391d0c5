#pragma once
// The function under check: what it is a function of, its projections and their gradients.

#include <optional>
#include <string>
#include <vector>

#include <xtape/framework/nn/parameter_list.hpp>
#include <xtape/framework/train/gradcheck/difference.hpp>
#include <xtape/framework/train/gradcheck/function.hpp>

namespace xtape::detail {

/// Normal random numbers that belong to (seed, stream).
std::vector<double> normal_values(std::size_t count, std::uint64_t seed, std::uint64_t stream);

/// Says why a function cannot be checked as a function.
struct Misbehaviour : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The numbers whose derivatives are checked, inputs first, then parameters that are not frozen; and the function,
/// whose output is projected on two random directions. Throws Misbehaviour if the function throws, if its output
/// changes its shape, or if it writes into an input or a parameter. At its end parameters are as they were, and have no
/// gradients.
class Checked {
 public:
  Checked(const CheckedFunction& f, std::vector<Shape> shapes, std::vector<std::vector<double>> values,
          const ParameterList<double>& parameters, std::uint64_t seed);
  Checked(const Checked&) = delete;
  Checked& operator=(const Checked&) = delete;
  ~Checked();

  std::size_t count() const { return values_.size() + parameters_.size(); }
  std::string name(std::size_t i) const;
  Shape shape(std::size_t i) const { return is_input(i) ? shapes_[i] : parameter(i).shape(); }
  std::size_t size(std::size_t i) const { return shape(i).size(); }
  const double* data(std::size_t i) const { return is_input(i) ? values_[i].data() : parameter(i).data(); }
  double* write(std::size_t i) { return is_input(i) ? values_[i].data() : parameter(i).write_data(); }

  /// Both projections of what the output differs by from that of the first call, which is the middle.
  Pair<Projected> project();
  /// Sum of |y w| in the middle; not finite if the output is not.
  double magnitude(std::size_t p) const;
  /// Runs forward and backward of projection p. Gradients stand on what was there: prefill(i, data) fills them before.
  /// False if the output requires no gradient.
  template <class Prefill>
  bool backward(std::size_t p, Prefill prefill) {
    begin_backward();
    if (!output_.requires_grad()) return false;
    for (std::size_t i = 0; i < count(); ++i) prefill(i, grad(i));
    finish_backward(p);
    return true;
  }
  /// The gradient of tensor i after backward.
  double* grad(std::size_t i);

  /// The size of an element's surroundings.
  double scale(std::size_t i, std::size_t k) const;
  std::uint64_t seed() const { return seed_; }
  /// Throws Misbehaviour if a parameter is not what it was.
  void check_parameters() const;

 private:
  bool is_input(std::size_t i) const { return i < values_.size(); }
  const Parameter<double>& parameter(std::size_t i) const { return parameters_[i - values_.size()].parameter; }
  Parameter<double>& parameter(std::size_t i) { return parameters_[i - values_.size()].parameter; }
  void forward(bool requires_grad);
  void begin_backward();
  void finish_backward(std::size_t p);

  const CheckedFunction& f_;
  std::vector<Shape> shapes_;
  std::vector<std::vector<double>> values_;
  ParameterList<double> parameters_;
  std::vector<std::vector<double>> before_;  // of the parameters
  std::vector<double> typical_;              // root mean square of each tensor
  Tape<double> tape_;
  std::vector<Var<double>> inputs_;
  Var<double> output_;
  std::optional<Shape> output_shape_;
  std::optional<std::vector<double>> middle_;  // the output
  Pair<std::vector<double>> weights_;          // of the projections
  std::uint64_t seed_;
};

/// The function along element k of tensor i.
Line along_element(Checked& checked, std::size_t i, std::size_t k);

/// The index of an element as a place in an array of the shape.
Shape place_of(std::size_t k, const Shape& shape);

/// The size of an element's surroundings: its own size, or a tenth of what is usual in its tensor; 1 if that is 0.
double surroundings(double x, double typical);

/// Root mean square of those that are finite.
double root_mean_square(const std::vector<double>& x);

}  // namespace xtape::detail
