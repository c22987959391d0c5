#pragma once
// What the callback of one op adds to the gradients of its inputs, and what shows without any difference that it is
// wrong.

#include <xtape/framework/train/gradcheck/replay.hpp>

namespace xtape::detail {

/// An element of an op's input whose gradient is wrong, or may be: one beyond finite may be right.
struct Suspect {
  const RecordedOp* op;
  const OpInput* input;
  std::size_t element;
  double analytic;
  Reason reason;
};

/// A guard: the gradients of a record's parameters are put back as they were.
class KeptParameterGradients {
 public:
  explicit KeptParameterGradients(Tape<double>& tape);
  KeptParameterGradients(const KeptParameterGradients&) = delete;
  KeptParameterGradients& operator=(const KeptParameterGradients&) = delete;
  ~KeptParameterGradients();

 private:
  Tape<double>& tape_;
  std::vector<std::pair<Var<double>, std::vector<double>>> grads_;
};

/// Fills in the gradients of the op's inputs for both projections of its outputs. The callback runs twice, and again on
/// gradients that hold random numbers. Returns elements that are not finite, or that differ between the runs.
std::vector<Suspect> run_own_backward(Record& record, RecordedOp& op, std::uint64_t seed);

}  // namespace xtape::detail
