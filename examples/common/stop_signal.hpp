#pragma once
// SIGINT and SIGTERM as a wish that is met at the next good moment.

#include <csignal>

namespace examples {

/// While it lives, the first of these signals is noted, and whatever comes after it ends the process at once, as ever.
/// A signal that the process was started to ignore (in the background, say) stays ignored. Does nothing if `wanted` is
/// false. One at a time.
class StopSignal {
 public:
  explicit StopSignal(bool wanted);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  /// The number of the signal that came; 0 if none did.
  int received() const;

 private:
  bool wanted_;
  struct sigaction interrupt_, terminate_;  // what was done before
};

}  // namespace examples
