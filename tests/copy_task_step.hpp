#pragma once
// The training step that memory and allocation tests measure: a language model of the default size on random sequences
// of random lengths, as the copy task has them. The data are made before, so that a step is all that is measured.

#include "support.hpp"

namespace xtape {

class CopyTaskStep {
 public:
  static constexpr std::size_t batch = 32, vocabulary = 28, longest = 25, shortest = 9;

  /// The model, and `batches` batches whose times run through all from shortest to longest.
  explicit CopyTaskStep(std::size_t batches) {
    Rng rng(2);
    for (std::size_t i = 0; i < batches; ++i) {
      const std::size_t time = i == 0 ? longest : shortest + rng.below(longest - shortest + 1);
      Batch& data = batches_.emplace_back();
      data.time = time;
      data.tokens = zeros_of<int>({batch, time});
      data.targets = zeros_of<int>({batch, time});
      data.lengths = zeros_of<int>({batch});
      for (std::size_t b = 0; b < batch; ++b) {
        const std::size_t length = 1 + rng.below(time);
        data.lengths(b) = static_cast<int>(length);
        for (std::size_t t = 0; t < time; ++t) {
          data.tokens(b, t) = static_cast<int>(rng.below(vocabulary));
          data.targets(b, t) = t < length ? static_cast<int>(rng.below(vocabulary)) : -100;
        }
      }
    }
  }

  /// Trains on batch i (modulo their number); returns the loss.
  float operator()(std::size_t i) {
    const Batch& data = batches_[i % batches_.size()];
    tape.clear();
    const Mask mask = tape.lengths(data.lengths, data.time);
    const auto loss =
        cross_entropy(model(tape, data.tokens, {.allow_keys = mask, .allow_queries = mask}), data.targets);
    tape.backward(loss);
    clip_grad_norm(list, 1.0);
    optimizer.step();
    optimizer.zero_grad();
    return loss.item();
  }

  Tape<float> tape{1};
  Rng rng{1};
  TransformerLm<float> model{{.vocabulary = vocabulary, .length = longest, .block = {.dropout = 0.1}}, rng};
  ParameterList<float> list = parameters<float>(model);
  AdamW<float> optimizer{list};

 private:
  struct Batch {
    std::size_t time = 0;
    xt::xarray<int> tokens, targets, lengths;
  };
  std::vector<Batch> batches_;
};

}  // namespace xtape
