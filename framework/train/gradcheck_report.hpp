#pragma once
// What the gradient checker says: one line a tensor, worst first, and the op whose backward is wrong.

#include <iosfwd>
#include <string>
#include <vector>

#include <xtape/framework/base/shape.hpp>

namespace xtape {

enum class Reason {
  ok,
  kink,               // one-sided slopes differ at some element; the analytic value lies between them
  inconclusive,       // no step gave an error bar narrow enough to tell
  mismatch,           // the analytic value lies outside the error bar
  no_gradient,        // no gradient arrived, though the output depends on the element
  non_deterministic,  // two runs differ
  non_finite          // infinity or NaN in a gradient or difference
};
const char* to_string(Reason reason);  // as written above

/// An element with its derivative both ways.
struct CheckedElement {
  Shape place = {};
  double analytic = 0, numeric = 0;
  double step = 0;       // of the widest difference
  double bar = 0;        // what the numeric value may be off by
  double ratio() const;  // |analytic - numeric| in error bars
};

/// One input or parameter, with the element whose difference is the largest in error bars.
struct TensorReport {
  std::string name = {};
  Shape shape = {};
  Reason reason = Reason::ok;
  CheckedElement worst = {};
  std::size_t checked = 0, kinks = 0, inconclusive = 0;  // elements; kinks: those with an acceptable value
  std::size_t directions = 0;                            // random ones, where only a sample of elements was checked
  std::string note = {};                                 // a sentence, where the reason does not say all
};

/// An op whose own backward disagrees with its own forward.
struct Blame {
  std::string layer = {};     // path of the layer that called it, "" outside of all
  std::string op = {};        // name of the op
  std::string argument = {};  // which of its inputs got the wrong gradient, "" if none did
  Reason reason = Reason::mismatch;
  CheckedElement worst = {};  // of that argument
};
/// "blocks.1.self_attn: attention, argument k"
std::string to_string(const Blame& blame);

/// True if nothing speaks against the gradients: every tensor is ok, or a kink whose analytic value lies within the
/// one-sided slopes, and of each tensor at least 99 % of the elements, or all but one, could be judged ok.
struct GradcheckReport {
  std::vector<TensorReport> tensors;  // worst first
  std::vector<Blame> blame;           // in the order of recording; empty if the check passed or no op is to blame
  std::string problem;                // a sentence, if the function could not be checked as a function
  explicit operator bool() const;
};
/// A table of one line a tensor, then who is to blame.
std::string to_string(const GradcheckReport& report);
std::ostream& operator<<(std::ostream& out, const GradcheckReport& report);
/// The same as JSON: {"passed", "problem", "tensors": [...], "blame": [...]}; numbers beyond finite are strings.
std::string to_json(const GradcheckReport& report);

namespace detail {
/// Failures before the rest, of equal ones those that are further off; what passed keeps its order.
void sort_worst_first(GradcheckReport& report);
}  // namespace detail

}  // namespace xtape
