#include <cmath>

#include "common/tasks.hpp"

namespace examples {
namespace {

class Recall : public Task {
 public:
  explicit Recall(const TaskOptions& o)
      : Task("recall", first_letters(o.letters) + "0123456789|.", 2 * o.length.longest + 1 + 2 * o.queries,
             arrangements(o.letters, o.length.longest) * std::pow(10, static_cast<double>(o.length.longest)),
             {"answers every question about", "lists", "values"}),
        letters_(o.letters),
        queries_(o.queries),
        length_(o.length) {}

  Example make(xtape::Rng& rng) const override {
    const std::size_t pairs = length_.shortest + rng.below(length_.longest - length_.shortest + 1);
    const Tokens keys = distinct(rng, letters_, pairs);
    Example example;
    const auto say = [&](std::int64_t token, bool asked) {
      example.tokens.push_back(token);
      example.asked.push_back(asked);
    };
    Tokens values;
    for (const std::int64_t key : keys) {
      values.push_back(static_cast<std::int64_t>(letters_ + rng.below(10)));
      say(key, false), say(values.back(), false);
    }
    say(separator(), false);
    for (const std::int64_t i : distinct(rng, pairs, queries_))
      say(keys[static_cast<std::size_t>(i)], false), say(values[static_cast<std::size_t>(i)], true);
    return example;
  }

 private:
  std::size_t letters_, queries_;
  Lengths length_;
};

}  // namespace

std::unique_ptr<Task> make_recall(const TaskOptions& options) {
  xtape::require(options.length.longest <= options.letters, "[recall] {} pairs need as many different letters, got {}",
                 options.length.longest, options.letters);
  xtape::require(options.queries <= options.length.shortest, "[recall] {} queries need at least as many pairs, got {}",
                 options.queries, options.length.shortest);
  return std::make_unique<Recall>(options);
}

}  // namespace examples
