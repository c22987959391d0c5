#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include <xtape/framework/train/profile.hpp>

namespace xtape {
namespace {

/// What several entries come to together.
struct ProfileSum {
  std::uint64_t calls = 0;
  double forward = 0, backward = 0, flop = 0, bytes = 0;  // seconds of their own; a span's are forward
  void add(const ProfileEntry& e) {
    calls += e.calls;
    (e.kind == ProfileKind::backward ? backward : forward) += e.self_seconds;
    flop += e.flop, bytes += e.bytes;
  }
  double seconds() const { return forward + backward; }
};

/// "blocks.*.linear1" for "blocks.3.linear1": layers that differ by a number do the same.
std::string layer_without_numbers(const std::string& layer) {
  std::string text;
  for (const char c : layer) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    const bool begins = text.empty() || text.back() == '.';
    if (digit && begins)
      text += '*';
    else if (!digit || text.back() != '*')
      text += c;
  }
  return text;
}

std::string op_title(const ProfileEntry& e) {
  if (e.kind == ProfileKind::span) return fmt::format("({})", e.name);
  return e.kind == ProfileKind::backward ? e.name + " backward" : e.name;
}

std::string layer_title(const ProfileEntry& e) {
  return e.layer.empty() ? "(outside of layers)" : layer_without_numbers(e.layer);
}

/// Sums by title, the longest first.
std::vector<std::pair<std::string, ProfileSum>> sums_by(const std::vector<const ProfileEntry*>& entries,
                                                        std::string (*title)(const ProfileEntry&)) {
  std::map<std::string, ProfileSum> sums;
  for (const ProfileEntry* entry : entries) sums[title(*entry)].add(*entry);
  std::vector<std::pair<std::string, ProfileSum>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds() > b.second.seconds(); });
  return sorted;
}

/// Billions a second, or nothing where there are none.
std::string rate(double amount, double seconds) {
  return amount > 0 && seconds > 0 ? fmt::format("{:.1f}", amount / seconds / 1e9) : "";
}

/// A table whose columns are as wide as what stands in them, the first aligned to the left, the others to the right.
std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line = fmt::format("{:<{}}", row[0], widths[0]);
    for (std::size_t c = 1; c < row.size(); ++c) line += fmt::format("  {:>{}}", row[c], widths[c]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace

std::string ProfileLog::to_text(const std::string& span) const {
  const auto is_asked_for = [&](const ProfileEntry& e) { return e.kind == ProfileKind::span && e.name == span; };
  std::vector<const ProfileEntry*> inside;
  std::set<std::string> names;
  std::vector<bool> is_inside(entries_.size(), span.empty());
  std::uint64_t runs = 0;
  double seconds = 0, flop = 0;
  for (std::size_t i = 1; i < entries_.size(); ++i) {  // what is within comes after what is around
    const ProfileEntry& e = entries_[i];
    const bool below = is_inside[e.within], outermost = span.empty() ? e.within == 0 : is_asked_for(e) && !below;
    is_inside[i] = below || outermost;
    if (e.kind == ProfileKind::span && e.calls > 0) names.insert(e.name);
    if (outermost) runs += e.calls, seconds += e.seconds;
    if (is_inside[i]) inside.push_back(&e), flop += e.flop;
  }
  if (span.empty()) runs = 1;
  require(runs > 0, "[profile] expected the name of a span that has ended, one of [{}], got {}", fmt::join(names, ", "),
          span);

  const double n = static_cast<double>(runs);
  const auto ms = [&](double s) { return s > 0 ? fmt::format("{:.3f}", 1000 * s / n) : ""; };
  const auto share = [&](double s) { return fmt::format("{:.1f}%", seconds > 0 ? 100 * s / seconds : 0); };
  std::string text = span.empty() ? fmt::format("all that was profiled: {:.3f} ms", 1000 * seconds)
                                  : fmt::format("{}: {} of {:.3f} ms", span, runs, 1000 * seconds / n);
  if (flop > 0) text += fmt::format(", {} GFLOP/s", rate(flop, seconds));

  std::vector<std::vector<std::string>> rows = {{"op", "calls", "ms", "share", "GFLOP/s", "GB/s"}};
  for (const auto& [title, sum] : sums_by(inside, op_title))
    rows.push_back({title, fmt::format("{:.4g}", static_cast<double>(sum.calls) / n), ms(sum.seconds()),
                    share(sum.seconds()), rate(sum.flop, sum.seconds()), rate(sum.bytes, sum.seconds())});
  text += fmt::format("\n\n{}", columns(rows));
  if (!names.empty()) text += "(span): what none of the ops and spans inside it took\n";

  std::erase_if(inside, [](const ProfileEntry* e) { return e->kind == ProfileKind::span; });
  rows = {{"layer", "forward ms", "backward ms", "share", "GFLOP/s"}};
  for (const auto& [title, sum] : sums_by(inside, layer_title))
    rows.push_back({title, ms(sum.forward), ms(sum.backward), share(sum.seconds()), rate(sum.flop, sum.seconds())});
  if (rows.size() > 1) text += fmt::format("\n{}", columns(rows));
  return text;
}

}  // namespace xtape
