#include "common/copy_sequences.hpp"

#include <algorithm>
#include <cmath>

#include <xtape/framework/base/random.hpp>

namespace examples {

CopySequences::CopySequences(std::size_t letters, std::size_t shortest, std::size_t longest, std::uint64_t seed)
    : letters_(letters), shortest_(shortest), longest_(longest), seed_(seed) {
  constexpr double fewest = 20'000;
  const double sequences = std::pow(static_cast<double>(letters), static_cast<double>(longest));
  xtape::require(sequences >= fewest,
                 "[copy task] {} letters and length {} make only {} sequences; at least {} are needed to hold some "
                 "out, so take more "
                 "letters or a longer length",
                 letters, longest, sequences, fewest);
}

Part CopySequences::part_of(const Letters& letters) const {
  std::uint64_t hash = letters.size();
  for (const std::int64_t letter : letters) hash = xtape::philox(0, hash, static_cast<std::uint64_t>(letter))[0];
  constexpr std::uint64_t parts = 20;  // one in twenty is kept for evaluation, one for the verdict
  return hash % parts == 0 ? Part::verdict : hash % parts == 1 ? Part::evaluation : Part::training;
}

std::vector<Letters> CopySequences::draw(Part part, std::size_t count, std::uint64_t stream) const {
  const std::uint64_t key = static_cast<std::uint64_t>(part) << 56 | stream;
  xtape::Rng rng(seed_, key << 24);
  std::vector<Letters> result;
  while (result.size() < count) {
    Letters letters(shortest_ + rng.below(longest_ - shortest_ + 1));
    std::generate(letters.begin(), letters.end(), [&] { return static_cast<std::int64_t>(rng.below(letters_)); });
    if (part_of(letters) == part) result.push_back(std::move(letters));
  }
  return result;
}

CopyBatch CopySequences::batch_of(const std::vector<Letters>& sequences, std::int64_t separator, std::int64_t padding) {
  std::size_t longest = 0;
  for (const Letters& letters : sequences) longest = std::max(longest, letters.size());
  const std::size_t rows = sequences.size(), time = 2 * longest;
  CopyBatch batch{xt::xtensor<std::int64_t, 2>::from_shape({rows, time}),
                  xt::xtensor<std::int64_t, 2>::from_shape({rows, time}),
                  xt::xtensor<std::int64_t, 1>::from_shape({rows})};
  batch.tokens.fill(padding);
  batch.targets.fill(ignored);
  for (std::size_t row = 0; row < rows; ++row) {
    const Letters& x = sequences[row];
    const std::size_t n = x.size();
    batch.lengths(row) = static_cast<std::int64_t>(2 * n);
    batch.tokens(row, n) = separator;
    for (std::size_t i = 0; i < n; ++i) {
      batch.tokens(row, i) = x[i];
      if (i + 1 < n) batch.tokens(row, n + 1 + i) = x[i];
      batch.targets(row, n + i) = x[i];
    }
  }
  return batch;
}

std::string CopySequences::text(const Letters& tokens) const {
  std::string result;
  for (const std::int64_t token : tokens)
    result += token == separator() ? '|' : token == padding() ? '.' : static_cast<char>('a' + token);
  return result;
}

}  // namespace examples
