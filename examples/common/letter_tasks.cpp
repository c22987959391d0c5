#include <algorithm>
#include <cmath>

#include "common/tasks.hpp"

namespace examples {
namespace {

using Answer = Tokens (*)(Tokens letters);

class LetterTask : public Task {
 public:
  LetterTask(const TaskOptions& o, std::string verb, Answer answer)
      : Task(o.name, first_letters(o.letters) + "|.", 2 * o.length.longest + 1,
             std::pow(static_cast<double>(o.letters), static_cast<double>(o.length.longest)),
             {std::move(verb), "sequences", "letters"}),
        letters_(o.letters),
        length_(o.length),
        answer_(answer) {}

  Example make(xtape::Rng& rng) const override {
    Tokens letters(length_.shortest + rng.below(length_.longest - length_.shortest + 1));
    for (std::int64_t& letter : letters) letter = static_cast<std::int64_t>(rng.below(letters_));
    return question(letters, answer_(letters));
  }

 private:
  std::size_t letters_;
  Lengths length_;
  Answer answer_;
};

Tokens copied(Tokens letters) { return letters; }
Tokens reversed(Tokens letters) {
  std::reverse(letters.begin(), letters.end());
  return letters;
}
Tokens sorted(Tokens letters) {
  std::sort(letters.begin(), letters.end());
  return letters;
}

}  // namespace

std::unique_ptr<Task> make_letter_task(const TaskOptions& options) {
  if (options.name == "reverse") return std::make_unique<LetterTask>(options, "reverses", reversed);
  if (options.name == "sort") return std::make_unique<LetterTask>(options, "sorts", sorted);
  return std::make_unique<LetterTask>(options, "copies", copied);
}

}  // namespace examples
