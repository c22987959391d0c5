#pragma once
// What a value depends on without saying so, so that no callback can pass its gradient on: an op's operand that is not
// among its inputs, and a value that was made outside the tape's ops, such as tape.input(x.value()).

#include <optional>

#include <xtape/framework/train/gradcheck/replay.hpp>

namespace xtape::detail {

/// An op that reads a memory that is not among its inputs.
struct HiddenInput {
  const RecordedOp* op;
  Var<double> memory;       // on the record; names nothing if it is a parameter that is not on the tape,
  std::size_t parameter;    // then its number in the list
  CheckedElement evidence;  // of a projection of the op's outputs, by a move of all of the memory
};
/// A value without inputs whose numbers change with the inputs or parameters of the function.
struct OutsideValue {
  Var<double> value;                 // on the record
  std::optional<Var<double>> after;  // the op's output before it
  CheckedElement evidence;           // of the element that changes the most, by a move of all inputs and parameters
};

/// Each op is run with everything moved that wants a gradient, stands before it and is not among its inputs. In the
/// order of recording; empty if the record is so large that this would take long.
std::vector<HiddenInput> find_hidden_inputs(const Given& given, Record& record,
                                            const ParameterList<double>& parameters);
std::vector<OutsideValue> find_outside_values(const Given& given, Record& record,
                                              const ParameterList<double>& parameters);

}  // namespace xtape::detail
