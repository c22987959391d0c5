#include "common/task.hpp"

#include <algorithm>

namespace examples {

Task::Task(std::string name, std::string characters, std::size_t longest, double prompts, Wording wording)
    : name_(std::move(name)), characters_(std::move(characters)), longest_(longest), wording_(std::move(wording)) {
  constexpr double fewest = 20'000;
  xtape::require(prompts >= fewest,
                 "[{}] these settings make only {} different {}; at least {} are needed to hold some out, so make them "
                 "longer",
                 name_, prompts, wording_.examples, fewest);
}

Tokens Task::prompt(const Example& example) const {
  return {example.tokens.begin(), std::find(example.tokens.begin(), example.tokens.end(), separator())};
}

Example Task::question(Tokens prompt, const Tokens& answer) const {
  Example example{std::move(prompt), {}};
  example.tokens.push_back(separator());
  example.asked.assign(example.tokens.size(), false);
  example.tokens.insert(example.tokens.end(), answer.begin(), answer.end());
  example.asked.resize(example.tokens.size(), true);
  return example;
}

Part Task::part_of(const Example& example) const {
  const Tokens tokens = identity(example);
  std::uint64_t hash = tokens.size();
  for (const std::int64_t token : tokens) hash = xtape::philox(0, hash, static_cast<std::uint64_t>(token))[0];
  constexpr std::uint64_t parts = 20;  // one in twenty is kept for evaluation, one for the verdict
  return hash % parts == 0 ? Part::verdict : hash % parts == 1 ? Part::evaluation : Part::training;
}

std::vector<Example> Task::draw(Part part, std::size_t count, std::uint64_t seed, std::uint64_t stream) const {
  xtape::Rng rng(seed, stream << 24);
  std::vector<Example> result;
  while (result.size() < count) {
    Example example = make(rng);
    if (part_of(example) == part) result.push_back(std::move(example));
  }
  return result;
}

Batch Task::batch_of(const std::vector<Example>& examples) const {
  std::size_t longest = 0;
  for (const Example& example : examples) longest = std::max(longest, example.tokens.size());
  const std::size_t rows = examples.size(), time = longest - 1;
  Batch batch{xt::xtensor<std::int64_t, 2>::from_shape({rows, time}),
              xt::xtensor<std::int64_t, 2>::from_shape({rows, time}), xt::xtensor<std::int64_t, 1>::from_shape({rows})};
  batch.tokens.fill(padding());
  batch.targets.fill(ignored);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto& [tokens, asked] = examples[row];
    batch.lengths(row) = static_cast<std::int64_t>(tokens.size() - 1);
    for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
      batch.tokens(row, t) = tokens[t];
      if (asked[t + 1]) batch.targets(row, t) = tokens[t + 1];
    }
  }
  return batch;
}

std::string Task::text(const Tokens& tokens) const {
  std::string result;
  for (const std::int64_t token : tokens) result += characters_.at(static_cast<std::size_t>(token));
  return result;
}

}  // namespace examples
