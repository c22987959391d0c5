#pragma once
// What rounding does to analytic gradients.

#include <cstdint>
#include <vector>

#include <xtape/framework/train/gradcheck/claimed.hpp>

namespace xtape::detail {

/// A backward pass rounds, too: where large terms cancel in it, as in attention at scores of 1e12, what is left may be
/// nothing else. What an element then is worth is measured: all inputs and parameters are moved by a few units in their
/// last place, and the gradients of such runs compared with the claimed ones (stochastic arithmetic, Vignes 1993, "A
/// stochastic arithmetic for reliable scientific computation"). Nothing is run before something is asked.
class Rounding {
 public:
  Rounding(Checked& checked, const Claimed& claimed) : checked_(checked), claimed_(claimed) {}
  /// What element k of tensor i may be off by in projection p. Not finite if a gradient is not.
  double of(std::size_t i, std::size_t p, std::size_t k);
  /// The same of a derivative along a direction.
  double along(std::size_t i, std::size_t p, const std::vector<double>& direction);

 private:
  void measure();
  Checked& checked_;
  const Claimed& claimed_;
  std::vector<Pair<std::vector<double>>> spread_;  // of each tensor, once measured
  std::vector<Pair<double>> usual_;  // its root mean square: one element alone may round the same way in every run
};

}  // namespace xtape::detail
