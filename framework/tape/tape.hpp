#pragma once
// The tape: an explicit, linear record of what was computed, run in reverse to differentiate it.
//
// An op is a function that opens an output, fills it, and closes it with a callback:
//
//   Var<T> y = tape.output("snake", x.shape(), x);         // may throw; checks the inputs
//   ... read x, write y ...
//   tape.on_backward(y, [x, y] { ... add to x.grad() from y.grad() ... });
//
// Recording order is execution order and backward is its reverse: no sort, no recursion, no reference counts. Values,
// saved numbers and callbacks live in an arena until clear(); gradients of intermediate values come from a pool and go
// back to it as soon as their op's callback has run. A tape belongs to one thread at a time.

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <xtape/framework/base/memory.hpp>
#include <xtape/framework/tape/observer.hpp>
#include <xtape/framework/tape/parameter.hpp>
#include <xtape/framework/tape/var.hpp>

namespace xtape {

/// Bytes that a tape uses now, and the most that it ever did.
struct MemoryUse {
  struct Amount {
    std::size_t now = 0, peak = 0;
  };
  Amount values;             // inputs, masks, tokens and outputs of ops
  Amount saved;              // numbers that ops keep for their backward
  Amount record;             // nodes and callbacks
  Amount gradients;          // of inputs and intermediate values, and what a backward needs for a moment
  std::size_t reserved = 0;  // what the tape holds from the heap for all of these
};

/// Where a backward kernel puts a gradient: it adds to `data`, or overwrites it if this is the first contribution.
template <class T>
struct GradientSlot {
  T* data;
  bool accumulate;
};

/// What the random numbers of one op are a function of.
struct RandomState {
  std::uint64_t seed, step, ordinal, first_row;
};

/// An infinity or NaN on a record, and where it came from (see Tape::find_non_finite).
template <class T>
struct NonFinite {
  Var<T> holder;  // the value that holds it, or whose gradient does
  std::size_t index;
  T number;
  bool given;                             // the holder was not computed
  std::optional<Parameter<T>> parameter;  // the holder, if it is one
  std::optional<Var<T>> passed_by;        // for a gradient: the value whose op's backward made it
  std::optional<Var<T>> hiding;           // for a value: what was given with -inf in it and led to it
};

/// What a backward callback has to be. It lives in the tape's memory and is never destroyed, so it may capture Vars,
/// pointers and numbers, but no containers.
template <class Callback>
concept OwnsNothing = std::is_trivially_destructible_v<Callback>;

template <class T>
class Tape {
 public:
  class NoGrad;
  class Scope;
  class Span;
  class Workspace;

  /// The seed determines dropout, together with the step (see set_step).
  explicit Tape(std::uint64_t seed = 0);
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // ---- what enters the tape (the templates are defined in expr.hpp)

  /// The value of any xtensor expression or number, evaluated now.
  template <class Expression>
  Var<T> input(const Expression& expression, bool requires_grad = false);
  Var<T> number(T x);
  /// A parameter: its value and gradient stay where they are.
  Var<T> var(const Parameter<T>& parameter);
  /// A mask from an expression of bool.
  template <class Expression>
  Mask mask(const Expression& expression);
  /// The mask (B, time) whose row b is true for the first lengths(b) places, from an integral expression of shape (B).
  template <class Expression>
  Mask lengths(const Expression& lengths, std::size_t time);
  /// Tokens or targets from any integral expression.
  template <class Expression>
  Integers integers(const Expression& expression);
  /// The same from row-major memory.
  Integers integers(const std::int64_t* numbers, const Shape& shape);

  // ---- for ops

  /// Opens an output of the op. It requires a gradient if any input does and recording is on. An op with several
  /// outputs opens them one after another with the same inputs. Throws TapeError for a stale handle, a foreign tape, or
  /// if an earlier output that requires a gradient was never closed.
  template <std::same_as<Var<T>>... Inputs>
  Var<T> output(const char* op, Shape shape, Inputs... inputs) {
    return output_from(op, shape, {inputs...});
  }
  Var<T> output_from(const char* op, Shape shape, std::initializer_list<Var<T>> inputs) {
    return output_from(op, shape, inputs.begin(), inputs.size());
  }
  Var<T> output_from(const char* op, Shape shape, const Var<T>* inputs, std::size_t count);
  /// A value of another shape in the same memory, with the same gradient: how reshape is made.
  Var<T> alias(const char* op, Shape shape, Var<T> x);
  /// The same value in the same memory, but without a gradient: how detach is made.
  Var<T> constant_alias(const char* op, Var<T> x);

  /// Closes an output: the callback adds into the gradients of those inputs that require one. It may hold handles,
  /// tape memory and numbers, nothing with a destructor.
  template <OwnsNothing Callback>
  void on_backward(Var<T> y, Callback callback) {
    on_backward({y}, callback);
  }
  /// Closes several outputs of one op: the callback runs if any of them received a gradient; the others read as zero.
  template <OwnsNothing Callback>
  void on_backward(std::initializer_list<Var<T>> outputs, Callback callback) {
    if (!check_outputs(outputs)) return tell_closed(outputs);
    void* place = record_memory(sizeof(Callback), alignof(Callback));
    new (place) Callback(callback);
    close(outputs, place, [](void* stored) { (*static_cast<Callback*>(stored))(); });
  }

  /// Numbers that an op saves for its backward; they live until clear().
  T* scratch(std::size_t count) { return static_cast<T*>(scratch_bytes(count * sizeof(T))); }
  void* scratch_bytes(std::size_t bytes);
  /// Numbers that a kernel needs while it runs.
  Workspace workspace(std::size_t count) { return Workspace(*this, count); }
  /// The gradient of x for a kernel that adds to it. On first touch nothing is cleared: the kernel overwrites.
  GradientSlot<T> slot(Var<T> x);
  /// A fresh state for one op's random numbers.
  RandomState next_random();

  // ---- differentiation

  /// Adds the derivatives of a scalar into the gradients of inputs and parameters.
  void backward(Var<T> scalar);
  /// The same for any y, given the derivatives dy with respect to it.
  template <class Expression>
  void backward(Var<T> y, const Expression& dy);
  /// Keeps the gradient of an intermediate value after backward, until clear() or the next backward.
  void retain_grad(Var<T> x);

  /// What made y infinite or NaN: the earliest such value, among those that led to y, whose inputs are all finite. An
  /// input that holds -inf may be meant to hide something, as in attention: if nothing else explains y, then the first
  /// value beyond -inf that came of it. Empty if y is finite.
  std::optional<NonFinite<T>> find_non_finite(Var<T> y);
  /// The first gradient beyond finite on the way from a scalar to the parameters whose gradient is such, found by
  /// running backward again; all gradients are left as they were. Empty if that makes none.
  std::optional<NonFinite<T>> find_non_finite_gradient(Var<T> scalar);

  // ---- looking at a record

  /// The observer is told of every op from now on, until the tape ends or unobserve. It must live as long. The last to
  /// come stands outermost around a callback; one that is told already is not told twice, but counts as the last.
  void observe(TapeObserver<T>& observer) { unobserve(observer), observers_.push_back(&observer); }
  void unobserve(TapeObserver<T>& observer) { std::erase(observers_, &observer); }
  /// Gives observers a name for what the program does while the guard lives: `const auto here = tape.span("data");`.
  [[nodiscard]] Span span(const char* name) { return Span(*this, name); }
  /// Number of values on the tape.
  std::size_t size() const { return nodes_.size(); }
  /// The value recorded at a place, counted from 0, and the place of a value: the same in every run of one program.
  Var<T> at(std::size_t place);
  std::size_t place(Var<T> x) const { return check(x, "place"), x.ticket_.node; }
  /// What an op's output was made from, and all outputs of its op (itself alone if the op was not closed).
  std::vector<Var<T>> inputs(Var<T> y);
  std::vector<Var<T>> outputs(Var<T> y);
  /// Runs the callback of the op that made y and nothing else: it adds to the gradients of its inputs from those that
  /// its outputs have. All gradients stay. False if the op has no callback or none of its outputs a gradient.
  bool backward_alone(Var<T> y);
  /// The gradient of x is as if nothing had touched it: the next to do so starts anew.
  void forget_grad(Var<T> x);

  // ---- the life of a record

  /// Forgets everything on the tape; every Var of it is refused from now on. Counts as the next step (see set_step).
  void clear();
  /// While the guard lives nothing is recorded for backward.
  [[nodiscard]] NoGrad no_grad() { return NoGrad(*this); }
  bool recording() const { return no_grad_depth_ == 0; }
  /// What is made while the scope lives is released with it: `auto scope = tape.scope(); ... y = scope.keep(y);`.
  [[nodiscard]] Scope scope() { return Scope(*this); }
  /// Training is the default; dropout is off in evaluation.
  void set_training(bool training) { training_ = training; }
  bool training() const { return training_; }
  /// Names the training step, and the place of the batch's first row in a larger batch, until the next clear().
  /// Random numbers are a function of (seed, step, op, row), so a resumed or divided run draws the same ones.
  void set_step(std::uint64_t step, std::size_t first_row = 0) {
    step_ = step;
    first_row_ = first_row;
  }
  std::uint64_t step() const { return step_; }
  MemoryUse memory() const;

  // ---- what handles are made of

  /// Throws TapeError if the handle is stale or lives on another tape; `op` names who asks.
  void check(Var<T> x, const char* op) const { static_cast<void>(node(x, op)); }
  template <class Element>
  void check(const ConstantArray<Element>& array, const char* op) const {
    check_ticket(array.tape, array.ticket, op);
  }

 private:
  friend class Var<T>;

  enum class Gradient : std::uint8_t { none, present, released };
  struct Node {
    const char* op = "";
    const char* layer = "";  // path of the layer whose call made it
    T* value = nullptr;
    T* grad = nullptr;
    Shape shape;
    std::uint64_t stamp = 0;
    const std::uint32_t* inputs = nullptr;   // numbers of the nodes that it was made from
    const std::uint32_t* outputs = nullptr;  // on the first output of an op: all of its outputs
    std::uint32_t input_count = 0, output_count = 0;
    std::uint32_t owner = 0;      // the node that owns value and gradient: itself, unless it is an alias
    std::int32_t parameter = -1;  // index into parameters_
    std::uint64_t version = 0;    // of the parameter when it was recorded
    void* callback = nullptr;     // on the first output of an op
    void (*run)(void*) = nullptr;
    bool requires_grad = false, is_output = false, retained = false;
    Gradient gradient = Gradient::none;
  };
  struct Position {
    std::size_t nodes = 0, parameters = 0, values = 0, saved = 0;
    Arena::Mark arena;
  };

  Node& push(const char* op, Shape shape);
  Var<T> handle(std::size_t index) { return Var<T>(this, {index, nodes_[index].stamp}); }
  T* value_memory(std::size_t count) { return static_cast<T*>(value_bytes(count * sizeof(T))); }
  void* value_bytes(std::size_t bytes);
  template <class Element>
  ConstantArray<Element> constant(const char* op, const Shape& shape, Element*& data);
  void* record_memory(std::size_t bytes, std::size_t align) { return arena_.allocate(bytes, align); }

  void check_ticket(const void* tape, detail::Ticket ticket, const char* op) const;
  const Node& node(Var<T> x, const char* op) const;
  Node& node(Var<T> x, const char* op) { return const_cast<Node&>(std::as_const(*this).node(x, op)); }
  Node& gradient_owner(Var<T> x, const char* op = "grad");

  bool check_outputs(std::initializer_list<Var<T>> outputs);
  void close(std::initializer_list<Var<T>> outputs, void* callback, void (*run)(void*));
  void tell_closed(std::initializer_list<Var<T>> outputs);
  void check_closed(const char* op, const Var<T>* inputs, std::size_t count) const;

  T* gradient(Node& owner, bool& existed);
  T* zeroed_gradient(Node& owner);
  void release_gradient(Node& owner);
  void check_versions(const Node& user) const;
  void begin_backward(Var<T> y);
  void run_backward(Var<T> y);
  bool run_callback(std::size_t node);
  void run_observed(std::size_t node, std::size_t observer);
  void release_outputs(const Node& node);
  class KeptGradients;
  NonFinite<T> non_finite_at(std::uint32_t holder, std::size_t index, const T* numbers);

  Position position() const { return {nodes_.size(), parameters_.size(), values_.now, saved_.now, arena_.mark()}; }
  void release(const Position& position);

  std::vector<Node> nodes_;
  std::vector<Parameter<T>> parameters_;  // keeps what the record points to
  std::vector<std::uint32_t> open_;       // outputs that require a gradient and are not closed yet
  Arena arena_;
  Pool pool_;
  MemoryUse::Amount values_, saved_;
  std::uint64_t stamp_, clears_ = 0;
  std::uint64_t seed_, step_ = 0, ordinal_ = 0, first_row_ = 0;
  int no_grad_depth_ = 0, scope_depth_ = 0;
  bool training_ = true;
  std::vector<TapeObserver<T>*> observers_;
};

/// The tape that the operands of an op live on. Throws TapeError in the op's name if one of them is empty, stale or of
/// another tape than the first.
template <class T, class... More>
Tape<T>& tape_of(const char* op, Var<T> x, More... more) {
  Tape<T>& tape = x.tape(op);
  tape.check(x, op);
  (tape.check(more, op), ...);
  return tape;
}

/// A guard: while it lives, ops on the tape record nothing for backward.
template <class T>
class Tape<T>::NoGrad {
 public:
  explicit NoGrad(Tape& tape) : tape_(tape) { ++tape_.no_grad_depth_; }
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
  ~NoGrad() { --tape_.no_grad_depth_; }

 private:
  Tape& tape_;
};

/// A guard: while it lives, what happens is told under its name.
template <class T>
class Tape<T>::Span {
 public:
  Span(Tape& tape, const char* name) : tape_(tape) {
    for (std::size_t i = 0; i < tape_.observers_.size(); ++i) tape_.observers_[i]->span_began(name);
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  ~Span() {
    for (std::size_t i = 0; i < tape_.observers_.size(); ++i) tape_.observers_[i]->span_ended();
  }

 private:
  Tape& tape_;
};

/// A guard: what is made while it lives is released at its end, or at `keep`.
template <class T>
class Tape<T>::Scope {
 public:
  explicit Scope(Tape& tape)
      : tape_(tape), start_(tape.position()), clears_(tape.clears_), depth_(++tape.scope_depth_) {}
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope() {
    --tape_.scope_depth_;
    if (clears_ == tape_.clears_) tape_.release(start_);
  }
  /// Releases what the scope has made so far, except the value of y, which outlives the scope under the handle that is
  /// returned. Throws TapeError if y requires a gradient, since its record would be lost, and if another scope is open
  /// inside this one.
  Var<T> keep(Var<T> y) { return keep_all({y})[0]; }
  template <std::same_as<Var<T>>... More>
  std::array<Var<T>, 2 + sizeof...(More)> keep(Var<T> y, Var<T> z, More... more) {
    const auto kept = keep_all({y, z, more...});
    std::array<Var<T>, 2 + sizeof...(More)> result;
    std::copy_n(kept.begin(), result.size(), result.begin());
    return result;
  }

 private:
  std::array<Var<T>, 8> keep_all(std::initializer_list<Var<T>> ys);
  Tape& tape_;
  Position start_;
  std::uint64_t clears_;
  int depth_;
};

/// Numbers from the tape's pool that go back to it at the end of the block.
template <class T>
class Tape<T>::Workspace {
 public:
  Workspace(Tape& tape, std::size_t count)
      : tape_(tape), count_(count), data_(static_cast<T*>(tape.pool_.allocate(count * sizeof(T)))) {}
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { tape_.pool_.free(data_, count_ * sizeof(T)); }
  T* data() const { return data_; }

 private:
  Tape& tape_;
  std::size_t count_;
  T* data_;
};

}  // namespace xtape
