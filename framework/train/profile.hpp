#pragma once
// Where the time goes: what every op of a tape takes, forward and backward, and what happens between them.

#include <chrono>
#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <xtape/framework/train/profile_cost.hpp>

namespace xtape {

enum class ProfileKind : std::uint8_t { span, forward, backward };

/// All calls of one op in one layer in one direction, or all runs of one span, within one span around it.
struct ProfileEntry {
  ProfileKind kind;
  std::string name;            // of the op or the span
  std::string layer = "";      // path of the layer whose call made the op (LayerName); "" outside of all
  std::size_t within = 0;      // the span around it, as a place in entries()
  std::uint64_t calls = 0;     // that have ended
  double seconds = 0;          // from begin to end
  double self_seconds = 0;     // without the ops and spans inside
  double flop = 0, bytes = 0;  // see profile_cost.hpp
};

/// A record of what took how long. Times are wall time on the thread that uses it.
class ProfileLog {
 public:
  /// The first entry is the whole, around all others; it has no time of its own.
  const std::deque<ProfileEntry>& entries() const { return entries_; }

  /// Two tables of what happened within the spans of a name, per run of such a span: by op and by layer, sorted by
  /// time. Without a name: of everything. Throws Error, which lists the names, if no such span has ended.
  std::string to_text(const std::string& span = "") const;

  /// Every op and span as an event on a line of time, in the Trace Event Format that chrome://tracing and
  /// ui.perfetto.dev load. Throws Error if the file cannot be written; an older one is then left as it was.
  void write_chrome_trace(const std::filesystem::path& path) const;
  /// How many ops and spans have ended, and how many of them the trace holds: the first, up to the limit, without
  /// those of an outermost span that is not whole.
  std::uint64_t events() const { return events_; }
  std::size_t traced_events() const;

 protected:
  explicit ProfileLog(std::size_t most_traced_events);
  ProfileLog(const ProfileLog&) = delete;
  ProfileLog& operator=(const ProfileLog&) = delete;
  ~ProfileLog() = default;

  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t no_place = static_cast<std::size_t>(-1);
  /// Something begins, within what has begun before: an output of an op, at its place on the tape, or else no_place.
  /// Returns what `end` needs.
  std::size_t begin(ProfileKind kind, std::string_view name, const char* layer, const Shape& shape, OperationCost cost,
                    std::size_t place = no_place);
  void end(std::size_t frame);
  void end_span();
  /// The op whose first output stands at this place is closed.
  void close(std::size_t place, std::size_t element_bytes);

 private:
  /// What has begun and not ended.
  struct Frame {
    std::size_t entry, place;
    Shape shape;
    OperationCost cost;
    Clock::time_point begin = {}, next = {};  // `next`: when something else began within it
    Clock::duration inside = {};              // of what began and ended within it
  };
  struct Event {
    std::size_t entry;
    Shape shape;
    Clock::time_point begin;
    Clock::duration duration;
  };

  std::size_t find_entry(ProfileKind kind, std::string_view name, std::string_view layer);
  void pop(Clock::time_point end);
  void pop_unclosed(Clock::time_point now);

  std::deque<ProfileEntry> entries_;  // stay where they are: the keys look into them
  std::map<std::tuple<std::size_t, ProfileKind, std::string_view, std::string_view>, std::size_t> places_;
  std::vector<Frame> frames_;
  std::size_t span_ = 0;  // entry of the innermost span
  std::vector<Event> traced_;
  std::size_t most_traced_, whole_ = 0;  // events of outermost spans that have ended
  std::uint64_t events_ = 0;
  Clock::time_point start_ = Clock::now();
};

/// Watches a tape while it lives:
///
///   Profile<float> profile(tape);
///   for (...) {
///     const auto step = tape.span("step");
///     ...                                       // forward and backward
///     const auto here = tape.span("optimizer");
///     optimizer.step();
///   }
///   std::cout << profile.to_text("step");
///   profile.write_chrome_trace("profile.json");
///
/// An op's forward time is from opening its output to closing it; an op that is not closed, since it never has a
/// gradient, ends when the next thing begins. Measuring costs well below a microsecond an op, and nothing without a
/// Profile. Results keep their bits. Must not outlive the tape.
template <class T>
class Profile : public ProfileLog, TapeObserver<T> {
 public:
  /// Keeps at most so many events for the trace, of about 100 bytes each.
  explicit Profile(Tape<T>& tape, std::size_t most_traced_events = 50'000);
  ~Profile();

 private:
  void opened(Var<T> y) override;
  void closed(Var<T> first) override;
  void backward(Var<T> first, const std::function<void()>& run) override;
  void span_began(const char* name) override;
  void span_ended() override;
  Tape<T>& tape_;
};

}  // namespace xtape
