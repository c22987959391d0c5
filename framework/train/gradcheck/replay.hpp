#pragma once
// The ops of a function one by one: a record of it, and further runs in which the inputs of single ops are moved.
//
// An op reads its inputs only after it has opened its output, so it is enough to move an input then and to put it back
// when the op closes. The op's outputs are read, and replaced by those of the record: the rest of the run goes on as if
// nothing had happened, and one run serves many ops.

#include <map>
#include <optional>
#include <vector>

#include <xtape/framework/train/gradcheck/blame.hpp>
#include <xtape/framework/train/gradcheck/difference.hpp>

namespace xtape::detail {

/// A function with what it is given.
struct Given {
  const CheckedFunction& f;
  const std::vector<Shape>& shapes;
  const std::vector<std::vector<double>>& values;
  /// Runs it on a cleared tape, with the same random numbers each time. Returns its inputs.
  std::vector<Var<double>> run(Tape<double>& tape) const;
};

/// One memory among the inputs of an op that wants a gradient.
struct OpInput {
  Var<double> x;
  std::vector<std::size_t> arguments;  // its places among the op's inputs: several if it is given more than once
  Pair<std::vector<double>> gradient;  // what the op's callback adds, for each projection of its outputs
};

/// An op with a callback.
struct RecordedOp {
  std::size_t opened;                // number of outputs that had been opened before its first
  std::vector<Var<double>> outputs;  // those that want a gradient
  std::vector<OpInput> inputs;
  std::size_t input_count;      // of the op, constants and repetitions included
  Pair<double> magnitude = {};  // of its projections: sum of |y w|
};

/// A function's run with all gradients on.
class Record : TapeObserver<double> {
 public:
  Record(const Given& given, std::uint64_t seed);
  Tape<double> tape;
  std::vector<Var<double>> inputs;  // of the function
  std::vector<RecordedOp> ops;      // in the order of recording

  /// The upstream gradients of an op's outputs, one after another, and at the same time their projections. Outputs
  /// that are not finite, as the log-sum-exp of nothing, count as if theirs were 0.
  const double* weights(std::size_t projection) const { return weights_[projection].data(); }
  /// Projections of what an op's outputs in another run differ by from those of the record.
  Pair<Projected> project(const RecordedOp& op, const std::vector<Var<double>>& outputs) const;
  /// How many numbers stand on it.
  double numbers() const { return numbers_; }

 private:
  void opened(Var<double> y) override { opened_.push_back(y); }
  void closed(Var<double> first) override {
    if (first.requires_grad()) closed_.push_back(first);
  }
  std::vector<Var<double>> opened_, closed_;
  Pair<std::vector<double>> weights_;
  double numbers_ = 0;
};

/// The elements from begin to end of an op's input, moved together along one of the random directions.
struct Probe {
  const RecordedOp* op;
  const OpInput* input;
  std::size_t direction, begin, end;
  std::optional<Pair<double>> noise = {};        // in the projections
  std::map<double, Pair<Projected>> known = {};  // how the op's projections change, by how far it moves
};

/// Further runs of the function.
class Replay : TapeObserver<double> {
 public:
  static constexpr std::size_t directions = 2;
  Replay(const Given& given, const Record& record, std::uint64_t seed);
  /// Adds to what the probes know, with their inputs moved by t times the direction. Each is of another op, in the
  /// order of recording. Where the function throws, nothing is added.
  void run(const std::vector<Probe*>& probes, double t);
  /// The same for probes of any ops, in as few runs as serve all, at each of several t.
  void run_together(const std::vector<Probe*>& probes, const std::vector<double>& ts);
  std::size_t runs() const { return runs_; }
  /// Those among them that served one probe alone.
  std::size_t lone_runs() const { return lone_runs_; }

  /// How far element i goes for t = 1: a random number times the element's own scale. 0 where its gradient is not
  /// finite, unless it goes alone.
  double direction(const Probe& probe, std::size_t i) const;

 private:
  struct Finished {};
  void opened(Var<double> y) override;
  void closed(Var<double> first) override;
  void put_back();

  Given given_;
  const Record& record_;
  std::array<std::vector<double>, directions> random_;
  std::map<const OpInput*, double> typical_;  // root mean square of its elements
  Tape<double> tape_;
  std::size_t runs_ = 0, lone_runs_ = 0;

  // Of a run.
  std::vector<Probe*> probes_;
  double t_ = 0;
  std::size_t opened_ = 0, next_ = 0;
  Var<double> moving_;           // the output that is open with an input moved
  double* moved_ = nullptr;      // the memory that is moved
  std::vector<double> unmoved_;  // and what stood there
};

}  // namespace xtape::detail
