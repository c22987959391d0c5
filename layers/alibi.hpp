#pragma once

#include <cmath>
#include <vector>

#include <xtape/framework/tape/expr.hpp>

namespace xtape {

/// The slope of each head (Press et al. 2022, section 3): 2^(-8 / heads), 2^(-16 / heads), ..., 2^-8 if heads is a
/// power of two. Else, as in the authors' code, the slopes of the power below, followed by every other one of the power
/// above.
inline std::vector<double> alibi_slopes(std::size_t heads) {
  std::size_t power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<double> slopes(heads);
  for (std::size_t h = 0; h < heads; ++h) {
    const double step = 8.0 / static_cast<double>(power);
    slopes[h] = std::exp2(h < power ? -step * static_cast<double>(h + 1)
                                    : -step / 2 * static_cast<double>(2 * (h - power) + 1));
  }
  return slopes;
}

/// Attention with linear biases (Press et al. 2022), as the bias of Attend: -slope |place of the query - place of the
/// key|, (1, heads, queries, keys). The last query stands at the last key.
template <class T>
Var<T> alibi(Tape<T>& tape, std::size_t heads, std::size_t queries, std::size_t keys) {
  const std::vector<double> slopes = alibi_slopes(heads);
  Var<T> bias = tape.output("alibi", {1, heads, queries, keys});
  T* to = bias.data();
  for (const double slope : slopes)
    for (std::size_t i = 0; i < queries; ++i)
      for (std::size_t j = 0; j < keys; ++j)
        *to++ = static_cast<T>(-slope * std::abs(static_cast<double>(i + keys) - static_cast<double>(j + queries)));
  return bias;
}
/// The same for queries at places (batch, queries) of their own: (batch, heads, queries, keys).
template <class T>
Var<T> alibi(Tape<T>& tape, std::size_t heads, const Integers& places, std::size_t keys) {
  tape.check(places, "alibi");
  require<ShapeError>(places.shape.rank() == 2, "[alibi] places must be (batch, time), got {}", places.shape);
  const std::size_t batch = places.shape[0], queries = places.shape[1];
  const std::vector<double> slopes = alibi_slopes(heads);
  Var<T> bias = tape.output("alibi", {batch, heads, queries, keys});
  T* to = bias.data();
  for (std::size_t b = 0; b < batch; ++b)
    for (const double slope : slopes)
      for (std::size_t i = 0; i < queries; ++i)
        for (std::size_t j = 0; j < keys; ++j)
          *to++ = static_cast<T>(-slope *
                                 std::abs(static_cast<double>(places.data[b * queries + i]) - static_cast<double>(j)));
  return bias;
}

}  // namespace xtape
