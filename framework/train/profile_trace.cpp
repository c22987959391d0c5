// A profile as a file of Google's Trace Event Format: an array of complete events ("X") with begin and duration in
// microseconds, all on one thread, where an event that lies within another one is drawn below it.

#include <xtape/framework/train/profile.hpp>

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include <xtape/framework/train/replacement.hpp>

namespace xtape {
namespace {

/// A text in quotes, whatever it holds.
std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// What all events of an entry begin with.
std::string beginning(const ProfileEntry& e) {
  const bool backward = e.kind == ProfileKind::backward, span = e.kind == ProfileKind::span;
  return fmt::format(R"({{"name": {}, "cat": "{}", "ph": "X", "pid": 1, "tid": 1, )",
                     json_text(backward ? e.name + " backward" : e.name),
                     span       ? "span"
                     : backward ? "backward"
                                : "forward");
}

}  // namespace

void ProfileLog::write_chrome_trace(const std::filesystem::path& path) const {
  Replacement file(path, "[profile] ");
  const auto write = [&](const std::string& text) { file.write(text.data(), text.size()); };
  const auto microseconds = [](Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); };
  std::vector<std::string> beginnings, layers;
  for (const ProfileEntry& e : entries_) {
    beginnings.push_back(beginning(e));
    layers.push_back(e.layer.empty() ? "" : fmt::format(", \"layer\": {}", json_text(e.layer)));
  }
  std::string text = fmt::format(
      "{{\"displayTimeUnit\": \"ms\",\n\"otherData\": {{\"events\": {}, \"traced\": {}, \"note\": \"{}\"}},\n"
      "\"traceEvents\": [\n",
      events_, traced_events(), traced_events() < events_ ? "the first events only" : "all events");
  text += R"({"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "xtape"}},)"
          "\n"
          R"({"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "tape"}})";
  for (std::size_t i = 0; i < traced_events(); ++i) {
    const Event& event = traced_[i];
    text += fmt::format(",\n{}\"ts\": {:.3f}, \"dur\": {:.3f}", beginnings[event.entry],
                        microseconds(event.begin - start_), microseconds(event.duration));
    if (entries_[event.entry].kind != ProfileKind::span)
      text += fmt::format(", \"args\": {{\"shape\": [{}]{}}}", fmt::join(event.shape, ", "), layers[event.entry]);
    text += '}';
    if (text.size() > (1u << 20)) write(std::exchange(text, {}));
  }
  write(text + "\n]}\n");
  file.finish();
}

}  // namespace xtape
