#pragma once
// Multi-head self-attention in its smallest steps (Vaswani et al. 2017, section 3.2), each kept under its name.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <xtape/framework/ops/ops.hpp>
#include <xtape/framework/tape/expr.hpp>

namespace examples {

using Array = xt::xarray<double>;

/// What is walked through.
struct Lesson {
  std::vector<std::string> tokens;
  std::size_t width, heads;
  bool causal;
  std::uint64_t seed;
  std::map<std::string, Array> given;  // X (T, d), W_Q, W_K, W_V, W_O (d, d), b_Q, b_K, b_V, b_O (d,)
  Array dY;                            // (T, d): the derivatives of a loss L with respect to Y

  std::size_t head_width() const { return width / heads; }
};
/// A lesson with random numbers. The vector of a token depends on the token and the seed alone.
Lesson lesson_of(std::vector<std::string> tokens, std::size_t width, std::size_t heads, bool causal,
                 std::uint64_t seed);

/// One number of one step, made a little larger: what a finite difference needs.
struct Nudge {
  std::string step = {};
  std::size_t index = 0;
  double amount = 0;
};

/// The results of the steps, in their order.
class Steps {
 public:
  xtape::Var<double> operator[](const std::string& name) const;
  const std::vector<std::pair<std::string, xtape::Var<double>>>& all() const { return steps_; }
  /// Of the step's matrix product: 0 for a step without one.
  std::size_t multiply_adds(const std::string& name) const;

 private:
  friend Steps attention_steps(xtape::Tape<double>&, const Lesson&, const Nudge&);
  std::vector<std::pair<std::string, xtape::Var<double>>> steps_;
  std::map<std::string, std::size_t> multiply_adds_;
};

/// x (T, heads * d_k) -> (heads, T, d_k)
xtape::Var<double> split_heads(xtape::Var<double> x, std::size_t heads);
/// The way back.
xtape::Var<double> merge_heads(xtape::Var<double> x);
/// (T, T): true where key j does not come after query i.
xt::xarray<bool> causal_mask(std::size_t time);

/// Runs all steps. Gradients of every step are kept.
Steps attention_steps(xtape::Tape<double>& tape, const Lesson& lesson, const Nudge& nudge = {});
/// L = sum of dY * Y, whose derivatives with respect to Y are dY, with one number nudged.
double loss(xtape::Tape<double>& tape, const Lesson& lesson, const Nudge& nudge);

/// Of two arrays of one shape.
double largest_difference(xtape::Var<double> a, xtape::Var<double> b);

}  // namespace examples
