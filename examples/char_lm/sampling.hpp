#pragma once
// Text that a model writes.

#include <xtape/framework/nn/sample.hpp>
#include "char_lm/model.hpp"

namespace examples::char_lm {

struct SampleOptions {
  xtape::Sampling sampling = {.temperature = 0.8};
  std::size_t max_new_tokens = 500;
  std::uint64_t seed = 0;
};

/// Continues a text of at least one token; `write` hears of each new token as it comes. A cache holds what the model
/// has seen. Once it is full, block_size characters, it begins again with the last half of them, since positions are
/// learned: so the model sees the last block_size / 2 to block_size characters.
void continue_text(const Model& model, std::size_t block_size, std::vector<std::int64_t> text,
                   const SampleOptions& options, const std::function<void(std::int64_t)>& write);

/// The tokens of a prompt; of a line end, or else of the first character, if it is empty. Throws xtape::Error for one
/// that is not UTF-8 or holds characters that the model does not know.
std::vector<std::int64_t> prompt_tokens(const std::string& prompt, const Vocabulary& vocabulary);

/// A short sample, broken into indented lines of a page.
std::string short_sample(const Model& model, const Vocabulary& vocabulary, std::size_t block_size, std::uint64_t seed);

}  // namespace examples::char_lm
