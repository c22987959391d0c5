#include <xtape/framework/train/gradcheck/checked.hpp>

#include <algorithm>
#include <cmath>

#include <xtape/framework/base/random.hpp>
#include <xtape/framework/tape/expr.hpp>
#include <xtape/framework/train/gradcheck/projected_change.hpp>
#include <xtape/framework/train/gradcheck/same_bits.hpp>

namespace xtape::detail {
namespace {

constexpr std::uint64_t projection_stream = 1 << 20;

Projected project_on(const std::vector<double>& w, const double* y, const std::vector<double>& before) {
  ProjectedChange change;
  for (std::size_t k = 0; k < w.size(); ++k) change.add(y[k], before[k], w[k]);
  return change.result();
}

}  // namespace

std::vector<double> normal_values(std::size_t count, std::uint64_t seed, std::uint64_t stream) {
  Rng rng(seed, stream << 40);
  std::vector<double> values(count);
  std::generate(values.begin(), values.end(), [&] { return rng.normal(); });
  return values;
}

Checked::Checked(const CheckedFunction& f, std::vector<Shape> shapes, std::vector<std::vector<double>> values,
                 const ParameterList<double>& parameters, std::uint64_t seed)
    : f_(f), shapes_(std::move(shapes)), values_(std::move(values)), parameters_(each_once(parameters)), seed_(seed) {
  std::erase_if(parameters_, [](const auto& entry) { return entry.parameter.frozen(); });
  for (const auto& [name, p] : parameters_) before_.emplace_back(p.data(), p.data() + p.size());
  for (std::size_t i = 0; i < count(); ++i)
    typical_.push_back(root_mean_square(std::vector<double>(data(i), data(i) + size(i))));
}

Checked::~Checked() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter<double>& p = parameters_[i].parameter;
    if (!same_bits(p.data(), before_[i].data(), p.size()))
      std::copy(before_[i].begin(), before_[i].end(), p.write_data());
    p.zero_grad();  // what stands there comes from random numbers
  }
}

std::string Checked::name(std::size_t i) const {
  return is_input(i) ? fmt::format("input {}", i) : parameters_[i - values_.size()].name;
}

double Checked::scale(std::size_t i, std::size_t k) const { return surroundings(data(i)[k], typical_[i]); }

void Checked::check_parameters() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!same_bits(parameters_[i].parameter.data(), before_[i].data(), before_[i].size()))
      throw Misbehaviour(fmt::format("the function changes the parameter {}", parameters_[i].name));
}

void Checked::forward(bool requires_grad) {
  tape_.clear();
  tape_.set_step(0);
  inputs_.clear();
  for (std::size_t i = 0; i < values_.size(); ++i)
    inputs_.push_back(tape_.input(adapt(values_[i].data(), shapes_[i]), requires_grad));
  output_ = f_(tape_, inputs_);
  tape_.check(output_, "gradcheck");
  if (!output_shape_) {
    output_shape_ = output_.shape();
    for (std::size_t p = 0; p < projections; ++p)
      weights_[p] = normal_values(output_.size(), seed_, projection_stream + p);
  }
  if (output_.shape() != *output_shape_)
    throw Misbehaviour(fmt::format("the function returned the shape {} at first and {} later",
                                   to_string(*output_shape_), to_string(output_.shape())));
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (!same_bits(inputs_[i].data(), values_[i].data(), values_[i].size()))
      throw Misbehaviour(fmt::format("the function changes input {}", i));
}

Pair<Projected> Checked::project() {
  const auto guard = tape_.no_grad();
  forward(false);
  if (!middle_) middle_.emplace(output_.data(), output_.data() + output_.size());
  return {project_on(weights_[0], output_.data(), *middle_), project_on(weights_[1], output_.data(), *middle_)};
}

double Checked::magnitude(std::size_t p) const {
  double magnitude = 0;
  for (std::size_t k = 0; k < middle_->size(); ++k) magnitude += std::abs((*middle_)[k] * weights_[p][k]);
  return magnitude;
}

void Checked::begin_backward() {
  for (auto& entry : parameters_) entry.parameter.zero_grad();
  forward(true);
}

void Checked::finish_backward(std::size_t p) {
  tape_.backward(output_, adapt(weights_[p].data(), output_.shape()));
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (!same_bits(inputs_[i].data(), values_[i].data(), values_[i].size()))
      throw Misbehaviour(fmt::format("the backward of the function changes input {}", i));
}

double* Checked::grad(std::size_t i) { return is_input(i) ? inputs_[i].grad().data() : parameter(i).grad_data(); }

Line along_element(Checked& checked, std::size_t i, std::size_t k) {
  return [&checked, i, k](double t, double& reached) {
    struct PutBack {  // also if the function throws
      double *place, before;
      ~PutBack() { *place = before; }
    };
    double* place = checked.write(i) + k;
    const PutBack put_back{place, *place};
    *place += t;
    reached = *place - put_back.before;
    return checked.project();
  };
}

Shape place_of(std::size_t k, const Shape& shape) {
  Shape place = shape;
  for (std::size_t axis = shape.rank(); axis-- > 0; k /= shape[axis]) place[axis] = k % shape[axis];
  return place;
}

double surroundings(double x, double typical) {
  const double size = std::max(std::abs(x), 0.1 * typical);
  return size > 0 && std::isfinite(size) ? size : 1;
}

double root_mean_square(const std::vector<double>& x) {
  double squares = 0;
  for (const double value : x)
    if (std::isfinite(value)) squares += value * value;
  return x.empty() ? 0 : std::sqrt(squares / static_cast<double>(x.size()));
}

}  // namespace xtape::detail
