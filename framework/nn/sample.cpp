#include <xtape/framework/nn/sample.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <xtape/framework/base/error.hpp>

namespace xtape {
namespace {

/// Sets all but the first n tokens of an order to 0 and makes the sum 1 again.
void keep_first(const std::vector<std::size_t>& order, std::size_t n, std::vector<double>& probabilities) {
  double mass = 0;
  for (std::size_t i = 0; i < n; ++i) mass += probabilities[order[i]];
  for (std::size_t i = 0; i < n; ++i) probabilities[order[i]] /= mass;
  for (std::size_t i = n; i < order.size(); ++i) probabilities[order[i]] = 0;
}

}  // namespace

template <class T>
std::vector<double> token_probabilities(std::span<const T> logits, const Sampling& sampling) {
  const auto& [temperature, top_k, top_p] = sampling;
  require(std::isfinite(temperature) && temperature >= 0,
          "[sampling] temperature must be 0 (greedy) or positive, got {}", temperature);
  require(top_p > 0 && top_p <= 1, "[sampling] top_p must be above 0 and at most 1, got {}", top_p);
  require(!logits.empty(), "[sampling] expected at least one token to choose from, got none");
  for (std::size_t i = 0; i < logits.size(); ++i)
    require(logits[i] < std::numeric_limits<T>::infinity(),
            "[sampling] expected logits that are finite, or -inf for what cannot come, got {} for token {}", logits[i],
            i);
  const auto best = std::max_element(logits.begin(), logits.end());
  const double largest = static_cast<double>(*best);
  require(std::isfinite(largest), "[sampling] expected a token that can come, got logits that are all -inf");

  std::vector<double> probabilities(logits.size(), 0);
  if (temperature == 0) {
    probabilities[static_cast<std::size_t>(best - logits.begin())] = 1;
    return probabilities;
  }
  double sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i)
    sum += probabilities[i] = std::exp((static_cast<double>(logits[i]) - largest) / temperature);
  for (double& p : probabilities) p /= sum;
  if ((top_k == 0 || top_k >= logits.size()) && top_p == 1) return probabilities;

  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (top_k > 0 && top_k < order.size()) keep_first(order, top_k, probabilities);
  if (top_p < 1) {
    std::size_t n = 0;
    for (double mass = 0; mass < top_p && n < order.size(); ++n) mass += probabilities[order[n]];
    keep_first(order, n, probabilities);
  }
  return probabilities;
}

std::size_t token_at(const std::vector<double>& probabilities, double uniform) {
  double mass = 0;
  std::size_t last = 0;  // that can come: rounding may leave the sum just below 1
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0) continue;
    last = i;
    mass += probabilities[i];
    if (uniform < mass) return i;
  }
  return last;
}

template std::vector<double> token_probabilities(std::span<const float>, const Sampling&);
template std::vector<double> token_probabilities(std::span<const double>, const Sampling&);

}  // namespace xtape
