#pragma once

#include <vector>

#include <xtape/framework/tape/expr.hpp>

namespace xtape {

/// The place of each token in its row when padding does not count, (batch, time), from a mask of that shape that is
/// true for tokens: each place's position is the number of tokens before it. For rows that are padded on the left.
template <class T>
Integers positions_without_padding(Tape<T>& tape, const Mask& tokens) {
  tape.check(tokens, "positions_without_padding");
  require<ShapeError>(tokens.shape.rank() == 2, "[positions_without_padding] the mask must be (batch, time), got {}",
                      tokens.shape);
  const std::size_t rows = tokens.shape[0], time = tokens.shape[1];
  std::vector<std::int64_t> positions(rows * time);
  for (std::size_t row = 0; row < rows; ++row) {
    std::int64_t before = 0;
    for (std::size_t place = row * time; place < (row + 1) * time; ++place) {
      positions[place] = before;
      before += tokens.data[place];
    }
  }
  return tape.integers(positions.data(), tokens.shape);
}

}  // namespace xtape
