#include <algorithm>
#include <cmath>

#include "common/tasks.hpp"

namespace examples {
namespace {

class Addition : public Task {
 public:
  explicit Addition(const TaskOptions& o)
      : Task("addition", "0123456789+=.", 3 * o.digits + 3, std::pow(100, static_cast<double>(o.digits)),
             {"adds", "pairs of numbers", "digits"}),
        digits_(o.digits) {}

  Example make(xtape::Rng& rng) const override {
    const Tokens a = number(rng), b = number(rng);
    Tokens prompt = a, sum;
    prompt.push_back(plus);
    prompt.insert(prompt.end(), b.begin(), b.end());
    std::int64_t carry = 0;
    for (std::size_t i = 0; i < digits_; ++i) {
      const std::int64_t place = a[i] + b[i] + carry;
      sum.push_back(place % 10);
      carry = place / 10;
    }
    sum.push_back(carry);
    return question(prompt, sum);
  }

 protected:
  /// The smaller operand first: who has met a + b has met b + a.
  Tokens identity(const Example& example) const override {
    const Tokens all = prompt(example);
    const auto sign = std::find(all.begin(), all.end(), plus);
    const Tokens a(all.begin(), sign), b(sign + 1, all.end());
    Tokens pair = std::min(a, b);
    pair.insert(pair.end(), std::max(a, b).begin(), std::max(a, b).end());
    return pair;
  }

 private:
  static constexpr std::int64_t plus = 10;
  Tokens number(xtape::Rng& rng) const {
    Tokens digits(digits_);
    for (std::int64_t& digit : digits) digit = static_cast<std::int64_t>(rng.below(10));
    return digits;
  }
  std::size_t digits_;
};

}  // namespace

std::unique_ptr<Task> make_addition(const TaskOptions& options) { return std::make_unique<Addition>(options); }

}  // namespace examples
