#pragma once
// The chapters of the walk-through. Each prints its own.

#include <filesystem>
#include <string>

#include "attention_walkthrough/steps.hpp"

namespace examples {

void print_forward(const Lesson& lesson);
/// Every gradient by its formula, beside its finite difference. False if they differ.
bool print_backward(const Lesson& lesson);
void print_costs(const Lesson& lesson);
void print_mistakes(const Lesson& lesson);
/// One of the walk-throughs that were computed with NumPy, "five", "batched" or "seven", from its file in a folder.
/// False if a digit differs, or a property does not hold.
bool print_numpy_walkthrough(const std::string& which, const std::filesystem::path& folder);

}  // namespace examples
