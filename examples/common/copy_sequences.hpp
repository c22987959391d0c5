#pragma once
// The data of the copy task: x1 ... xn SEP x1 ... xn, letters drawn at random.

#include <cstdint>
#include <string>
#include <vector>

#include <xtape/framework/tape/expr.hpp>
#include <xtensor/xtensor.hpp>

namespace examples {

/// One sequence to be copied, as token numbers.
using Letters = std::vector<std::int64_t>;

/// What a training step needs; row r holds x SEP x without its last token, padded to the longest row.
struct CopyBatch {
  xt::xtensor<std::int64_t, 2> tokens;   // (batch, time)
  xt::xtensor<std::int64_t, 2> targets;  // (batch, time): the next token where it belongs to the answer, -100 elsewhere
  xt::xtensor<std::int64_t, 1> lengths;  // (batch): tokens before the padding
};

/// Every sequence belongs to one of three parts for good, chosen by a hash of its letters: so what is evaluated was
/// never trained on, and the final verdict never evaluated before.
enum class Part { training, evaluation, verdict };

class CopySequences {
 public:
  static constexpr std::int64_t ignored = -100;

  /// Lengths from shortest to longest, `letters` letters. Throws xtape::Error if there are too few sequences to hold
  /// some out.
  CopySequences(std::size_t letters, std::size_t shortest, std::size_t longest, std::uint64_t seed);

  std::size_t vocabulary() const { return letters_ + 2; }
  /// Longest input of the model.
  std::size_t longest_input() const { return 2 * longest_; }
  std::int64_t separator() const { return static_cast<std::int64_t>(letters_); }
  std::int64_t padding() const { return separator() + 1; }

  /// `count` sequences of one part; the same (part, stream) gives the same ones.
  std::vector<Letters> draw(Part part, std::size_t count, std::uint64_t stream) const;
  static CopyBatch batch_of(const std::vector<Letters>& sequences, std::int64_t separator, std::int64_t padding);
  /// The batch of one training step: a function of the seed and the step.
  CopyBatch training_batch(std::size_t rows, std::uint64_t step) const {
    return batch_of(draw(Part::training, rows, step), separator(), padding());
  }
  /// a, b, c, ... and | for the separator, . for padding.
  std::string text(const Letters& tokens) const;

 private:
  Part part_of(const Letters& letters) const;
  std::size_t letters_, shortest_, longest_;
  std::uint64_t seed_;
};

}  // namespace examples
