// Checks the gradients of every op, layer and model against finite differences, and shows what a failure looks like.

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <cstdlib>
#include <mutex>
#include <sstream>

#include <xtape/framework/base/parallel.hpp>
#include <xtape/framework/train/replacement.hpp>
#include "common/flags.hpp"
#include "common/progress.hpp"
#include "gradient_check/outcome.hpp"

namespace {

using namespace examples;

struct Settings {
  CheckSettings check;
  bool list = false;
  std::vector<std::string> only;
  std::string json, fault = to_string(Fault::factor);
  int threads = xtape::threads();
};

std::vector<std::string> fault_names() {
  std::vector<std::string> names;
  for (const Fault fault : all_faults) names.push_back(to_string(fault));
  return names;
}

void add_flags(Flags& flags, Settings& s) {
  flags.add_switch("--list", s.list, "print the names of all entries and check nothing");
  flags.add("--only", s.only,
            "check the entries of this name alone; 'attention*' is a pattern, and there may be several");
  flags.add("--json", s.json, "write all reports to this file");
  flags.add("--seed", s.check.seed, "of inputs, parameters and projections", {.allowed = Range{0, 1'000'000'000}});
  flags.add("--samples", s.check.samples, "elements of a tensor that are checked; by default all of small tensors",
            {.allowed = Range{1, 1'000'000'000}, .show_default = false});
  flags.add("--threads", s.threads, "entries at a time; does not change the result", {.allowed = Range{1, 1024}});
  flags.add("--break", s.check.broken_op, "plant a fault into the backward of this op, wherever it is used");
  flags.add("--fault", s.fault, "the fault of --break", {.allowed = OneOf{fault_names()}});
}

/// How many letters have to be changed, added or left out (Levenshtein 1966), large and small ones alike.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = std::tolower(a[i - 1]) == std::tolower(b[j - 1]);
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + !same});
      diagonal = above;
    }
  }
  return row[b.size()];
}

/// ": did you mean linear, Linear?" with the names that are most like the one asked for; "" if none is.
std::string did_you_mean(const std::string& asked, std::vector<std::string> names) {
  constexpr std::size_t most = 5;
  const auto how_far = [&](const std::string& name) {
    return name.find(asked) != std::string::npos ? 0 : distance(asked, name);
  };
  std::erase_if(names, [&](const std::string& name) { return how_far(name) > asked.size() / 2; });
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return how_far(a) < how_far(b); });
  names.resize(std::min(names.size(), most));
  return names.empty() ? "" : fmt::format("; did you mean {}?", fmt::join(names, ", "));
}

std::vector<std::string> names_of(const std::vector<Entry>& entries) {
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.push_back(entry.name);
  return names;
}

/// The entries that any of the patterns names; all without patterns.
std::vector<Entry> chosen(std::vector<Entry> entries, const std::vector<std::string>& patterns) {
  const auto matches = [](const std::string& pattern, const Entry& entry) {
    return ::fnmatch(pattern.c_str(), entry.name.c_str(), 0) == 0;
  };
  for (const std::string& pattern : patterns)
    xtape::require(std::any_of(entries.begin(), entries.end(), [&](const Entry& e) { return matches(pattern, e); }),
                   "--only {} names nothing that --list shows{}", pattern, did_you_mean(pattern, names_of(entries)));
  if (!patterns.empty())
    std::erase_if(entries, [&](const Entry& entry) {
      return std::none_of(patterns.begin(), patterns.end(),
                          [&](const auto& pattern) { return matches(pattern, entry); });
    });
  return entries;
}

void check_broken_op(const std::string& op) {
  const std::vector<std::string> ops = names_of(op_entries());
  xtape::require(op.empty() || std::find(ops.begin(), ops.end(), op) != ops.end(),
                 "--break {}: there is no op of that name{}", op, did_you_mean(op, ops));
}

void print_list(const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) fmt::print("{:<34} {}\n", entry.name, entry.kind);
}

/// The page as it grows: each entry's line in its turn, and how far the check is.
class Page {
 public:
  explicit Page(std::size_t entries) : outcomes_(entries) {}

  void add(std::size_t place, Outcome outcome) {
    const std::lock_guard guard(mutex_);
    outcomes_[place] = std::move(outcome);
    ++done_;
    for (; shown_ < outcomes_.size() && !outcomes_[shown_].name.empty(); ++shown_) print(outcomes_[shown_]);
    if (progress_.on_terminal() && done_ < outcomes_.size()) progress_.show(bar());
  }
  const std::vector<Outcome>& outcomes() const { return outcomes_; }

 private:
  void print(const Outcome& outcome) {
    progress_.erase();
    if (outcome.kind != kind_) fmt::print("{}{}\n", kind_.empty() ? "" : "\n", coloured("1", table_head(outcome.kind)));
    kind_ = outcome.kind;
    fmt::print("{}\n", outcome.passed ? table_line(outcome) : coloured("31", table_line(outcome)));
    if (!outcome.passed) print_failure(outcome);
    std::fflush(stdout);
  }
  void print_failure(const Outcome& outcome) const {
    std::istringstream lines(failure_text(outcome, progress_.page_width()));
    fmt::print("\n");
    for (std::string line; std::getline(lines, line);)
      fmt::print("{}\n", line.find("to blame:") != std::string::npos ? coloured("1", line) : line);
    fmt::print("\n");
  }
  std::string bar() const {
    constexpr std::size_t width = 30;
    const std::size_t filled = width * done_ / outcomes_.size();
    return fmt::format("  [{:#<{}}{:.<{}}] {} of {}  {}", "", filled, "", width - filled, done_, outcomes_.size(),
                       duration_text(stopwatch_.seconds()));
  }
  /// Text in a colour of the terminal's.
  std::string coloured(const char* code, const std::string& text) const {
    return colours_ ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
  }

  std::mutex mutex_;
  std::vector<Outcome> outcomes_;
  std::size_t done_ = 0, shown_ = 0;
  std::string kind_;
  Progress progress_;
  const bool colours_ = progress_.on_terminal() && std::getenv("NO_COLOR") == nullptr;  // https://no-color.org
  Stopwatch stopwatch_;
};

int run(const Settings& s) {
  const std::vector<Entry> entries = chosen(all_entries(), s.only);
  if (s.list) {
    print_list(entries);
    return 0;
  }
  check_broken_op(s.check.broken_op);
  if (!s.check.broken_op.empty())
    fmt::print("A fault is planted into the backward of {}: {}.\n\n", s.check.broken_op, description(s.check.fault));
  xtape::set_threads(s.threads);
  Page page(entries.size());
  xtape::parallel_for(entries.size(), [&](std::size_t i, std::size_t) { page.add(i, run_entry(entries[i], s.check)); });

  const auto& outcomes = page.outcomes();
  fmt::print("{}{}\n", outcomes.back().passed ? "\n" : "", closing_text(outcomes));
  if (!s.json.empty()) {
    const std::string text = to_json(outcomes, s.check).dump(2) + "\n";
    xtape::Replacement file(s.json);
    file.write(text.data(), text.size());
    file.finish();
  }
  const bool planted = std::any_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.planted > 0; });
  xtape::require(
      s.check.broken_op.empty() || planted,
      "--break {}: the fault was planted nowhere, since nothing that was checked runs a backward of that name",
      s.check.broken_op);
  return std::all_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.passed; }) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  Flags flags(
      "Checks the gradients of every op, layer and model against finite differences. Exit code 1 if one is wrong.",
      "gradient_check");
  add_flags(flags, settings);
  try {
    if (const auto exit_code = flags.parse(argc, argv)) return *exit_code;
    settings.check.fault = *fault_named(settings.fault);
    return run(settings);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    fmt::print(stderr, "gradient_check: {}\n", error.what());
    return 1;
  }
}
