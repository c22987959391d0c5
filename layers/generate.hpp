#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <xtape/framework/nn/sample.hpp>
#include <xtape/framework/tape/expr.hpp>
#include <xtape/layers/key_value_cache.hpp>

namespace xtape {

struct GenerateOptions {
  std::size_t new_tokens = 32;            // at most, for each row
  std::optional<std::int64_t> stop = {};  // ends a row, as its last token
  double temperature = 0;                 // these three: see Sampling; greedy by default
  std::size_t top_k = 0;
  double top_p = 1;
  Rng rng = Rng(0);  // where random numbers come from: one for each row and token
  std::function<void(std::size_t row, std::int64_t token)> on_token = {};  // hears of each token as it comes
};

using TokenRows = std::vector<std::vector<std::int64_t>>;

namespace detail {

/// Rows of a batch as (batch, longest), padded on the left with token 0, and the mask of what is not padding.
template <class T>
std::pair<Integers, Mask> padded_on_the_left(Tape<T>& tape, const TokenRows& rows) {
  std::size_t time = 0;
  for (const auto& row : rows) time = std::max(time, row.size());
  std::vector<std::int64_t> tokens(rows.size() * time, 0);
  xt::xarray<bool> real = xt::zeros<bool>({rows.size(), time});
  for (std::size_t b = 0; b < rows.size(); ++b) {
    std::copy(rows[b].begin(), rows[b].end(),
              tokens.begin() + static_cast<std::ptrdiff_t>((b + 1) * time - rows[b].size()));
    for (std::size_t t = time - rows[b].size(); t < time; ++t) real(b, t) = true;
  }
  return {tape.integers(tokens.data(), {rows.size(), time}), tape.mask(real)};
}

}  // namespace detail

/// Continues each prompt of a batch token by token, in evaluation, with a cache: the new tokens of each row. Prompts
/// may differ in length. The same model, prompts and options give the same tokens.
///
/// A model has cache(batch, capacity), which makes a ModelCache<T>, and a call (tape, tokens, cache, real) that gives
/// logits (batch, time, vocabulary); see TransformerLm. Throws Error if a prompt is empty, if the model cannot hold a
/// prompt and its continuation, and if logits are NaN.
template <class Model>
TokenRows generate(const Model& model, const TokenRows& prompts, const GenerateOptions& options = {}) {
  using T = typename decltype(model.cache(1, 1))::value_type;
  std::size_t longest = 0;
  for (std::size_t row = 0; row < prompts.size(); ++row) {
    require(!prompts[row].empty(), "[generate] every prompt needs at least one token, got none in row {}", row);
    longest = std::max(longest, prompts[row].size());
  }
  TokenRows answers(prompts.size());
  if (prompts.empty() || options.new_tokens == 0) return answers;

  auto cache = model.cache(prompts.size(), longest + options.new_tokens - 1);  // the last token is not read again
  Tape<T> tape;
  tape.set_training(false);
  const auto no_grad = tape.no_grad();
  const Sampling sampling{options.temperature, options.top_k, options.top_p};
  Rng rng = options.rng;
  std::vector<bool> done(prompts.size(), false);
  TokenRows next = prompts;
  while (true) {
    tape.clear();
    const auto [tokens, real] = detail::padded_on_the_left(tape, next);
    const Var<T> logits = model(tape, tokens, cache, real);
    const Shape shape = logits.shape();
    require<ShapeError>(shape.rank() == 3 && shape[0] == prompts.size() && shape[1] == tokens.shape[1],
                        "[generate] the model's logits must be (batch {}, time {}, vocabulary), got {}", prompts.size(),
                        tokens.shape[1], shape);
    for (std::size_t row = 0; row < prompts.size(); ++row) {
      const double uniform = rng.uniform();
      next[row].clear();
      if (done[row]) continue;
      const T* last = logits.data() + ((row + 1) * shape[1] - 1) * shape[2];
      const auto token =
          static_cast<std::int64_t>(token_at(token_probabilities<T>({last, shape[2]}, sampling), uniform));
      answers[row].push_back(token);
      next[row].push_back(token);
      done[row] = token == options.stop || answers[row].size() == options.new_tokens;
      if (options.on_token) options.on_token(row, token);
    }
    if (std::all_of(done.begin(), done.end(), [](bool d) { return d; })) return answers;
  }
}

/// The same for one prompt.
template <class Model>
std::vector<std::int64_t> generate(const Model& model, const std::vector<std::int64_t>& prompt,
                                   const GenerateOptions& options = {}) {
  return generate(model, TokenRows{prompt}, options).front();
}

}  // namespace xtape
