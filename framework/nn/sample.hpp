#pragma once
// A token from logits.

#include <cstddef>
#include <span>
#include <vector>

#include <xtape/framework/base/random.hpp>

namespace xtape {

/// How a token is chosen.
struct Sampling {
  double temperature = 0;  // of the softmax; 0: the most probable token (greedy), the first one of equals
  std::size_t top_k = 0;   // only among the k most probable tokens (Fan et al. 2018); 0 = all
  double top_p = 1;        // then only among the fewest that reach this mass (Holtzman et al. 2020, section 3.1)
};

/// The probability of each token, in double: 0 where it is cut off. Among equals the first ones are kept. Throws Error
/// for options outside of temperature >= 0 and 0 < top_p <= 1, and for logits that hold NaN or infinity or only -inf;
/// -inf is a token that cannot come.
template <class T>
std::vector<double> token_probabilities(std::span<const T> logits, const Sampling& sampling = {});

/// A token drawn with these probabilities: a function of `uniform` in [0, 1).
std::size_t token_at(const std::vector<double>& probabilities, double uniform);

}  // namespace xtape
