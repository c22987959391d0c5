#include "common/tasks.hpp"

namespace examples {
namespace {

class Induction : public Task {
 public:
  explicit Induction(const TaskOptions& o)
      : Task("induction", first_letters(o.letters) + "|.", 2 * o.length.longest + 1,
             arrangements(o.letters, o.length.longest), {"continues", "repetitions", "letters"}),
        letters_(o.letters),
        length_(o.length) {}

  Example make(xtape::Rng& rng) const override {
    const Tokens letters =
        distinct(rng, letters_, length_.shortest + rng.below(length_.longest - length_.shortest + 1));
    const auto start = static_cast<std::ptrdiff_t>(rng.below(letters.size() - 1));
    Example example = question(letters, {letters.begin() + start, letters.end()});
    example.asked[letters.size() + 1] = false;
    return example;
  }

 private:
  std::size_t letters_;
  Lengths length_;
};

}  // namespace

std::unique_ptr<Task> make_induction(const TaskOptions& options) {
  xtape::require(2 <= options.length.shortest, "[induction] a repetition needs at least 2 letters, got {}",
                 options.length.shortest);
  xtape::require(options.length.longest <= options.letters,
                 "[induction] {} different letters need as many in all, got {}", options.length.longest,
                 options.letters);
  return std::make_unique<Induction>(options);
}

}  // namespace examples
