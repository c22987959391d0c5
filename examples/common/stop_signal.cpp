#include "common/stop_signal.hpp"

namespace examples {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

void note_stop_signal(int number) {
  stop_signal = number;
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
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
