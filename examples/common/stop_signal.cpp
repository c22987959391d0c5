#include "common/stop_signal.hpp"

#include <atomic>

namespace examples {
namespace {

std::atomic<int> stop_signal = 0;  // any thread may be the one that takes it
static_assert(std::atomic<int>::is_always_lock_free);

void note_stop_signal(int number) {
  stop_signal = number;
  for (const int each : {SIGINT, SIGTERM}) {
    struct sigaction now {};
    ::sigaction(each, nullptr, &now);
    if (now.sa_handler == note_stop_signal) std::signal(each, SIG_DFL);
  }
}

void note(int number, struct sigaction& before) {
  struct sigaction action {};
  action.sa_handler = note_stop_signal;
  action.sa_flags = SA_RESTART;
  ::sigaction(number, nullptr, &before);
  if (before.sa_handler != SIG_IGN) ::sigaction(number, &action, nullptr);
}

}  // namespace

StopSignal::StopSignal(bool wanted) : wanted_(wanted) {
  stop_signal = 0;
  if (!wanted_) return;
  note(SIGINT, interrupt_);
  note(SIGTERM, terminate_);
}

StopSignal::~StopSignal() {
  if (!wanted_) return;
  ::sigaction(SIGINT, &interrupt_, nullptr);
  ::sigaction(SIGTERM, &terminate_, nullptr);
}

int StopSignal::received() const { return stop_signal; }

}  // namespace examples
