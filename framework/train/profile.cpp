#include <xtape/framework/train/profile.hpp>

namespace xtape {

ProfileLog::ProfileLog(std::size_t most_traced_events) : most_traced_(most_traced_events) {
  entries_.push_back({ProfileKind::span, ""});
}

std::size_t ProfileLog::find_entry(ProfileKind kind, std::string_view name, std::string_view layer) {
  const auto known = places_.find({span_, kind, name, layer});
  if (known != places_.end()) return known->second;
  entries_.push_back({kind, std::string(name), std::string(layer), span_});
  const ProfileEntry& added = entries_.back();
  return places_[{span_, kind, added.name, added.layer}] = entries_.size() - 1;
}

std::size_t ProfileLog::begin(ProfileKind kind, std::string_view name, const char* layer, const Shape& shape,
                              OperationCost cost, std::size_t place) {
  const auto in_op = [&] { return !frames_.empty() && frames_.back().place != no_place; };
  // Spans and callbacks are not within an op. An op at this place or behind it is gone: the record starts anew there.
  while (in_op() && (place == no_place || frames_.back().place >= place)) pop_unclosed(Clock::now());
  if (in_op() && frames_.back().next == Clock::time_point()) frames_.back().next = Clock::now();
  const std::size_t entry = find_entry(kind, name, layer);
  if (kind == ProfileKind::span) span_ = entry;
  frames_.push_back({entry, place, shape, cost});
  frames_.back().begin = Clock::now();
  return frames_.size() - 1;
}

/// Ends the innermost.
void ProfileLog::pop(Clock::time_point end) {
  const Frame frame = frames_.back();
  frames_.pop_back();
  const Clock::duration duration = end - frame.begin;
  if (!frames_.empty()) frames_.back().inside += duration;
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  ProfileEntry& entry = entries_[frame.entry];
  ++entry.calls;
  entry.seconds += seconds(duration);
  entry.self_seconds += seconds(duration - frame.inside);
  entry.flop += frame.cost.flop;
  entry.bytes += frame.cost.bytes;
  if (entry.kind == ProfileKind::span) span_ = entry.within;
  ++events_;
  if (traced_.size() < most_traced_) traced_.push_back({frame.entry, frame.shape, frame.begin, duration});
  if (frames_.empty() && events_ == traced_.size()) whole_ = traced_.size();
}

/// The same for an op that never closed. It ended when something else began, and what began then was not within it.
void ProfileLog::pop_unclosed(Clock::time_point now) {
  Frame& frame = frames_.back();
  const Clock::time_point end = frame.next == Clock::time_point() ? now : frame.next;
  const Clock::duration after = std::exchange(frame.inside, {});
  pop(end);
  if (!frames_.empty()) frames_.back().inside += after;
}

void ProfileLog::end(std::size_t frame) {
  const Clock::time_point now = Clock::now();
  while (frames_.size() > frame + 1) pop_unclosed(now);
  if (frames_.size() == frame + 1) pop(now);
}

/// Ends the innermost span. One that had begun before the profile did is none of its own.
void ProfileLog::end_span() {
  for (std::size_t frame = frames_.size(); frame-- > 0;)
    if (entries_[frames_[frame].entry].kind == ProfileKind::span) return end(frame);
}

void ProfileLog::close(std::size_t place, std::size_t element_bytes) {
  const Clock::time_point now = Clock::now();
  std::size_t first = frames_.size();
  while (first > 0 && frames_[first - 1].place != no_place && frames_[first - 1].place > place) --first;
  if (first == 0 || frames_[first - 1].place != place) return;  // it opened before the profile began
  --first;
  while (frames_.size() > first + 1) {
    Frame& last = frames_.back();
    if (last.entry != frames_[first].entry) {
      pop_unclosed(now);
    } else {  // a further output of this op
      Frame& before = frames_[frames_.size() - 2];
      before.inside += last.inside;
      frames_[first].cost.bytes += static_cast<double>(last.shape.size() * element_bytes);
      frames_.pop_back();
    }
  }
  pop(now);
}

std::size_t ProfileLog::traced_events() const {
  return events_ > traced_.size() && whole_ > 0 ? whole_ : traced_.size();
}

template <class T>
Profile<T>::Profile(Tape<T>& tape, std::size_t most_traced_events) : ProfileLog(most_traced_events), tape_(tape) {
  tape_.observe(*this);
}

template <class T>
Profile<T>::~Profile() {
  tape_.unobserve(*this);
}

template <class T>
void Profile<T>::opened(Var<T> y) {
  begin(ProfileKind::forward, y.op(), y.layer(), y.shape(), forward_cost(y), tape_.place(y));
}

template <class T>
void Profile<T>::closed(Var<T> first) {
  close(tape_.place(first), sizeof(T));
}

template <class T>
void Profile<T>::backward(Var<T> first, const std::function<void()>& run) {
  struct Ending {
    Profile& profile;
    std::size_t frame;
    ~Ending() { profile.end(frame); }
  } ending{*this, begin(ProfileKind::backward, first.op(), first.layer(), first.shape(), backward_cost(first))};
  run();
}

template <class T>
void Profile<T>::span_began(const char* name) {
  begin(ProfileKind::span, name, "", {}, {});
}

template <class T>
void Profile<T>::span_ended() {
  end_span();
}

template class Profile<float>;
template class Profile<double>;

}  // namespace xtape
