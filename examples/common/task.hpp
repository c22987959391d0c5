#pragma once
// What a task is to a trainer: sequences of tokens, part of which the model must say itself.

#include <cstdint>
#include <string>
#include <vector>

#include <xtape/framework/base/random.hpp>
#include <xtape/framework/tape/expr.hpp>
#include <xtensor/xtensor.hpp>

namespace examples {

using Tokens = std::vector<std::int64_t>;

/// One sequence: a prompt, the separator, and an answer, all or part of which is asked of the model.
struct Example {
  Tokens tokens;
  std::vector<bool> asked;  // for each token: must the model say it?
};

/// What a training step needs; row r holds an example without its last token, padded to the longest row.
struct Batch {
  xt::xtensor<std::int64_t, 2> tokens;   // (batch, time)
  xt::xtensor<std::int64_t, 2> targets;  // (batch, time): the next token where it is asked for, -100 elsewhere
  xt::xtensor<std::int64_t, 1> lengths;  // (batch): tokens before the padding
};

/// Every example belongs to one of three parts for good, chosen by a hash of its prompt: so what is evaluated was never
/// trained on, and the final verdict never evaluated before.
enum class Part { training, evaluation, verdict };

/// The words of a verdict: "copies 996 of 1000 sequences that it never met (99.6%; letters: 99.95%)".
struct Wording {
  std::string verb, examples, tokens;
};

class Task {
 public:
  static constexpr std::int64_t ignored = -100;

  /// Token i is written as the i-th character; the last two are the separator and the padding. `longest` is the number
  /// of tokens of the longest example. Throws xtape::Error if the task has so few different prompts that none can be
  /// held out.
  Task(std::string name, std::string characters, std::size_t longest, double prompts, Wording wording);
  virtual ~Task() = default;

  const std::string& name() const { return name_; }
  const Wording& wording() const { return wording_; }
  std::size_t vocabulary() const { return characters_.size(); }
  std::int64_t padding() const { return static_cast<std::int64_t>(characters_.size()) - 1; }
  std::int64_t separator() const { return padding() - 1; }
  /// Longest input of the model: the last token of an example is never read.
  std::size_t longest_input() const { return longest_ - 1; }

  /// One example of any part.
  virtual Example make(xtape::Rng& rng) const = 0;
  Part part_of(const Example& example) const;
  /// `count` examples of one part; the same (seed, part, stream) gives the same ones.
  std::vector<Example> draw(Part part, std::size_t count, std::uint64_t seed, std::uint64_t stream) const;

  Batch batch_of(const std::vector<Example>& examples) const;
  /// The batch of one training step: a function of the seed and the step.
  Batch training_batch(std::size_t rows, std::uint64_t seed, std::uint64_t step) const {
    return batch_of(draw(Part::training, rows, seed, step));
  }

  std::string text(const Tokens& tokens) const;

 protected:
  /// What decides the part of an example: all before the separator. Examples that give each other away share it.
  virtual Tokens identity(const Example& example) const { return prompt(example); }
  Tokens prompt(const Example& example) const;
  /// prompt, separator, answer, the whole of which is asked for.
  Example question(Tokens prompt, const Tokens& answer) const;

 private:
  std::string name_, characters_;
  std::size_t longest_;
  Wording wording_;
};

}  // namespace examples
