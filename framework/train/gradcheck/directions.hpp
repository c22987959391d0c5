#pragma once
// Random directions through one tensor and through all, and what is claimed along them.

#include <xtape/framework/train/gradcheck/checked.hpp>

namespace xtape::detail {

/// A random direction through tensor i: each element by its scale, up or down.
std::vector<double> random_direction(const Checked& checked, std::size_t i, std::uint64_t number);
/// One through every tensor.
std::vector<std::vector<double>> random_directions(const Checked& checked, std::uint64_t number);

/// The function along a direction in the elements from `begin` to `end` of tensor i; the direction has all of them.
Line along(Checked& checked, std::size_t i, const std::vector<double>& direction, std::size_t begin, std::size_t end);
/// The function along a direction through every tensor.
Line along_all(Checked& checked, const std::vector<std::vector<double>>& directions);

/// The derivative along a direction, made up element by element.
struct Sum {
  double sum = 0, squares = 0;
  std::size_t count = 0;
  void add(const std::vector<double>& gradient, const std::vector<double>& direction);
  /// As a claim, whose bar is to be so narrow that one wrong element shows, or `least` of what such sums usually are.
  Claim claim(const Projected& middle, double least = 0) const;
};

}  // namespace xtape::detail
