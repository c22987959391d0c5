#pragma once
// How a tape is watched: for tools that try one op of a whole model alone, plant a fault into one callback, or measure.

#include <functional>

#include <xtape/framework/tape/var.hpp>

namespace xtape {

/// Is told of every op (Tape::observe). An exception that it throws ends the forward or backward; span_ended must throw
/// none.
template <class T>
class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  /// An op has opened an output and has not read its inputs yet. One with several outputs opens each.
  virtual void opened(Var<T>) {}
  /// An op has filled and closed its outputs, of which this is the first: it has called Tape::on_backward, whether
  /// there is a gradient to come or not. (An op that never has a gradient, such as one_hot, may not close.)
  virtual void closed(Var<T>) {}
  /// Stands in place of the callback of the op whose first output this is: `run` runs it.
  virtual void backward(Var<T>, const std::function<void()>& run) { run(); }
  /// A stretch of the program with this name has begun (Tape::span). The last to begin is the first to end.
  virtual void span_began(const char*) {}
  virtual void span_ended() {}
};

}  // namespace xtape
