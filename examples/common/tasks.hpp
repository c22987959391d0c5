#pragma once
// The tasks that programs train on, by name. Each lives in a file of its own family.

#include <memory>

#include "common/task.hpp"

namespace examples {

struct Lengths {
  std::size_t shortest, longest;
};

struct TaskOptions {
  std::string name = "copy";
  Lengths length = {4, 12};  // letters of a prompt; recall: pairs
  std::size_t letters = 26;  // size of the alphabet
  std::size_t digits = 3;    // addition: places of an operand
  std::size_t queries = 4;   // recall: values asked for
};

inline const std::vector<std::string> task_names = {"copy", "reverse", "sort", "addition", "recall", "induction"};

/// Throws xtape::Error with what does not fit together.
std::unique_ptr<Task> make_task(const TaskOptions& options);

/// Tasks on letters: the answer to a prompt of random letters is a function of them.
///   copy:    abac|abac
///   reverse: abac|caba
///   sort:    abac|aabc
std::unique_ptr<Task> make_letter_task(const TaskOptions& options);
/// 321+654=9750 for 123 + 456 = 579: operands and sum with the least significant digit first, so that a carry goes
/// the way the answer is said. Both orders of a pair belong to the same part.
std::unique_ptr<Task> make_addition(const TaskOptions& options);
/// Associative recall (Ba et al. 2016, section 4.1; Arora et al. 2023, with several queries): pairs of a letter and a
/// digit, then some of the letters again, each with its digit: a3k7c1|k7a3. The digits after the | are asked for.
std::unique_ptr<Task> make_recall(const TaskOptions& options);
/// Repeated random tokens (Olsson et al. 2022, "In-context learning and induction heads"): distinct letters, then the
/// same again from a random one of them to the end: qwerty|erty. All but the first of the repetition is asked for.
/// Since length and start are random, neither a place nor a distance tells what comes next.
std::unique_ptr<Task> make_induction(const TaskOptions& options);

// ---- what several tasks draw from

/// "abc...", `count` of them.
std::string first_letters(std::size_t count);
/// `count` different numbers below n, in random order.
Tokens distinct(xtape::Rng& rng, std::size_t n, std::size_t count);
/// n (n - 1) ... (n - count + 1), the number of results of `distinct`.
double arrangements(std::size_t n, std::size_t count);

}  // namespace examples
