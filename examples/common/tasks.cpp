#include "common/tasks.hpp"

#include <fmt/ranges.h>

#include <numeric>

namespace examples {

std::unique_ptr<Task> make_task(const TaskOptions& options) {
  if (options.name == "copy" || options.name == "reverse" || options.name == "sort") return make_letter_task(options);
  if (options.name == "addition") return make_addition(options);
  if (options.name == "recall") return make_recall(options);
  if (options.name == "induction") return make_induction(options);
  throw xtape::Error(fmt::format("there is no task {}; there are {}", options.name, fmt::join(task_names, ", ")));
}

std::string first_letters(std::size_t count) { return std::string("abcdefghijklmnopqrstuvwxyz").substr(0, count); }

Tokens distinct(xtape::Rng& rng, std::size_t n, std::size_t count) {
  Tokens numbers(n);
  std::iota(numbers.begin(), numbers.end(), 0);
  for (std::size_t i = 0; i < count; ++i) std::swap(numbers[i], numbers[i + rng.below(n - i)]);
  numbers.resize(count);
  return numbers;
}

double arrangements(std::size_t n, std::size_t count) {
  double result = 1;
  for (std::size_t i = 0; i < count; ++i) result *= static_cast<double>(n) - static_cast<double>(i);
  return result;
}

}  // namespace examples
