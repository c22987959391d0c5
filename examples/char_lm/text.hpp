#pragma once
// The text that a model learns: its characters, their numbers, and what is kept back to judge the model.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace examples::char_lm {

/// The characters that a model knows, Unicode code points in their order. A token is a place in it.
class Vocabulary {
 public:
  Vocabulary() = default;
  explicit Vocabulary(std::u32string characters);  // in any order, as often as they come
  /// The characters as UTF-8, in order: what is kept with a model.
  std::string text() const;
  std::size_t size() const { return characters_.size(); }
  /// Throws xtape::Error that names the characters which are not in the vocabulary. `what` begins the sentence.
  std::vector<std::int32_t> encode(const std::u32string& text, const std::string& what) const;
  std::optional<std::int64_t> find(char32_t character) const;
  char32_t operator[](std::int64_t token) const { return characters_[static_cast<std::size_t>(token)]; }

 private:
  std::u32string characters_;
};

/// A text as tokens. The last 10 % are for validation.
struct Text {
  Vocabulary vocabulary;
  std::vector<std::int32_t> tokens;
  std::string fingerprint;  // of the file's bytes

  std::span<const std::int32_t> training() const { return std::span(tokens).first(tokens.size() * 9 / 10); }
  std::span<const std::int32_t> validation() const { return std::span(tokens).subspan(tokens.size() * 9 / 10); }
};

/// Reads a UTF-8 text. Throws xtape::Error, a sentence that says what to do, if the file cannot be read, is not UTF-8,
/// has fewer than two different characters, or leaves less than block_size + 1 characters for training or validation.
Text read_text(const std::string& path, std::size_t block_size);

}  // namespace examples::char_lm
