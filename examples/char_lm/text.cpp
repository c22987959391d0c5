#include "char_lm/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <xtape/framework/base/error.hpp>
#include <xtape/framework/base/hash.hpp>
#include "common/progress.hpp"
#include "common/utf8.hpp"

namespace examples::char_lm {

using xtape::require;

namespace {

/// "x", or U+000A for what a terminal would not show.
std::string shown(char32_t character) {
  return is_control(character) ? fmt::format("U+{:04X}", static_cast<std::uint32_t>(character))
                               : fmt::format("\"{}\"", to_utf8(character));
}

std::string bytes_of(const std::string& path) {
  require(!path.empty(),
          "there is no text to learn from: name a UTF-8 file with --text FILE, or start with ./run char_lm, which "
          "installs the King James Bible and takes that");
  require(!std::filesystem::is_directory(path), "--text must name a file, {} is a folder", path);
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "the text {} cannot be read: name a UTF-8 file with --text FILE", path);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  require(!file.bad(), "the text {} cannot be read to its end", path);
  require(!bytes.empty(), "the text {} is empty: name a UTF-8 file with --text FILE", path);
  return bytes;
}

std::u32string code_points_of(const std::string& path, const std::string& bytes) {
  try {
    return code_points(bytes);
  } catch (const xtape::Error& error) {
    throw xtape::Error(fmt::format("{}: {}; convert it, for instance with iconv -f ISO-8859-1 -t UTF-8 FILE > NEW_FILE",
                                   path, error.what()));
  }
}

}  // namespace

Vocabulary::Vocabulary(std::u32string characters) {
  std::vector<bool> comes(0x110000);
  for (const char32_t c : characters) comes[c] = true;
  for (char32_t c = 0; c < comes.size(); ++c)
    if (comes[c]) characters_.push_back(c);
}

std::string Vocabulary::text() const {
  std::string result;
  for (const char32_t c : characters_) result += to_utf8(c);
  return result;
}

std::optional<std::int64_t> Vocabulary::find(char32_t character) const {
  const std::size_t place = characters_.find(character);
  return place == characters_.npos ? std::nullopt : std::optional(static_cast<std::int64_t>(place));
}

std::vector<std::int32_t> Vocabulary::encode(const std::u32string& text, const std::string& what) const {
  std::vector<std::int32_t> token_of(0x110000, -1), tokens;
  for (std::size_t i = 0; i < characters_.size(); ++i) token_of[characters_[i]] = static_cast<std::int32_t>(i);
  std::u32string unknown;
  tokens.reserve(text.size());
  for (const char32_t c : text) {
    tokens.push_back(token_of[c]);
    if (tokens.back() < 0 && unknown.find(c) == unknown.npos) unknown.push_back(c);
  }
  std::string names;
  for (const char32_t c : unknown) names += (names.empty() ? "" : ", ") + shown(c);
  require(unknown.empty(), "{} holds {}, which the text that the model learned from does not", what, names);
  return tokens;
}

Text read_text(const std::string& path, std::size_t block_size) {
  const std::string bytes = bytes_of(path);
  const std::u32string characters = code_points_of(path, bytes);
  Text text{Vocabulary(characters), {}, fmt::format("{:016x}", xtape::fnv1a(bytes))};
  require(text.vocabulary.size() > 1, "the text {} holds nothing but {}: there is nothing to learn from one symbol",
          path, shown(characters.front()));
  require(characters.size() > block_size,
          "the text {} has {} characters, too few for one window of --block_size {} and the character after it: give a "
          "longer text{}",
          path, grouped(static_cast<double>(characters.size())), block_size,
          characters.size() < 20 ? "" : fmt::format(" or a --block_size of at most {}", characters.size() / 10 - 1));
  text.tokens = text.vocabulary.encode(characters, path);
  const std::size_t kept_back = text.validation().size();
  const std::string advice = kept_back < 2 ? "give a longer text"
                                           : fmt::format("give a longer text or a --block_size of at most {}",
                                                         std::min(kept_back, text.training().size()) - 1);
  require(kept_back > block_size && text.training().size() > block_size,
          "the last 10 % of the text {} are for validation, which are {} characters, too few for one window of "
          "--block_size {} and the character after it: {}",
          path, grouped(static_cast<double>(kept_back)), block_size, advice);
  return text;
}

}  // namespace examples::char_lm
