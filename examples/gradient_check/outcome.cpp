#include "gradient_check/outcome.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "common/progress.hpp"

namespace examples {

using xtape::GradcheckReport;
using xtape::TensorReport;

Outcome run_entry(const Entry& entry, const CheckSettings& settings) {
  Outcome outcome;
  outcome.kind = entry.kind;
  outcome.name = entry.name;
  for (const Check& check : entry.checks) {
    Checked checked = check.run(settings);
    checked.variant = check.variant;
    outcome.planted += checked.planted;
    outcome.tensors += checked.report.tensors.size();
    for (const TensorReport& tensor : checked.report.tensors) {
      outcome.elements += tensor.checked;
      outcome.kinks += tensor.kinks;
      if (tensor.reason != xtape::Reason::kink) outcome.worst = std::max(outcome.worst, tensor.worst.ratio());
    }
    if (!checked.report && outcome.passed) {
      outcome.passed = false;
      const auto& tensors = checked.report.tensors;  // worst first
      outcome.verdict =
          tensors.empty() || tensors[0].reason == xtape::Reason::ok ? "problem" : to_string(tensors[0].reason);
    }
    outcome.checks.push_back(std::move(checked));
  }
  if (outcome.passed) outcome.verdict = "ok";
  return outcome;
}

namespace {

constexpr const char* columns = "  {:<33} {:>6} {:>7} {:>8} {:>9}  {}";

std::string number(double worst) {
  if (!std::isfinite(worst)) return "inf";
  return worst < 1000 ? fmt::format("{:.3f}", worst) : fmt::format("{:.1e}", worst);
}

constexpr std::size_t margin = 4;

/// A line of words behind the margin, continued on further lines where it is too long for the page.
std::string wrapped(const std::string& line, std::size_t page_width) {
  std::string text, current;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (!current.empty() && margin + current.size() + 1 + word.size() > page_width) {
      text += std::string(margin, ' ') + current + "\n";
      current = "  ";
    }
    current += (current.empty() || current == "  " ? "" : " ") + word;
  }
  return text + std::string(margin, ' ') + current + "\n";
}

/// The checker's report behind the margin. If its table is too wide for the page, what stands in it about the worst
/// element goes to a line of its own.
std::string fitted(const GradcheckReport& report, std::size_t page_width) {
  std::vector<std::string> lines;
  std::istringstream text(to_string(report));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  const auto head =
      std::find_if(lines.begin(), lines.end(), [](const auto& line) { return line.starts_with("reason "); });
  const auto end = head + std::min(lines.end() - head, 1 + static_cast<std::ptrdiff_t>(report.tensors.size()));
  const std::size_t cut = head == end ? 0 : head->find("worst at");
  const bool wide = std::any_of(head, end, [&](const auto& line) { return margin + line.size() > page_width; });
  std::string result;
  for (auto line = lines.begin(); line != lines.end(); ++line) {
    if (line < head || line >= end)
      result += wrapped(*line, page_width);
    else if (wide)
      result += fmt::format("{0:{1}}{2}\n{0:{1}}    {3}\n", "", margin,
                            line->substr(0, line->find_last_not_of(' ', cut - 1) + 1), line->substr(cut));
    else
      result += fmt::format("{:{}}{}\n", "", margin, *line);
  }
  return result;
}

}  // namespace

std::string table_head(const std::string& kind) {
  return fmt::format(columns, kind + "s", "checks", "tensors", "elements", "error/bar", "verdict");
}

std::string table_line(const Outcome& o) {
  std::string verdict = o.passed ? "ok" : "FAILED: " + o.verdict;
  if (o.passed && o.kinks > 0) verdict += fmt::format(", {} at a kink", o.kinks);
  return fmt::format(columns, o.name, o.checks.size(), o.tensors, o.elements, number(o.worst), verdict);
}

std::string failure_text(const Outcome& outcome, std::size_t page_width) {
  std::vector<std::string> others;
  std::string text;
  for (const Checked& checked : outcome.checks) {
    if (checked.report) continue;
    if (text.empty()) {
      text = fmt::format("    {}{}{} failed:\n", outcome.name, checked.variant.empty() ? "" : " ", checked.variant);
      text += fitted(checked.report, page_width);
    } else {
      others.push_back(checked.variant);
    }
  }
  if (!others.empty()) {
    constexpr std::size_t most_named = 3;
    const std::size_t more = others.size() - std::min(others.size(), most_named);
    others.resize(others.size() - more);
    std::string line = fmt::format("and so did {}", fmt::join(others, "; "));
    if (more > 0) line += fmt::format(" and {} more", more);
    text += wrapped(line, page_width);
  }
  return text;
}

std::string closing_text(const std::vector<Outcome>& outcomes) {
  std::size_t tensors = 0, elements = 0;
  std::vector<std::string> failed;
  for (const Outcome& o : outcomes) {
    tensors += o.tensors;
    elements += o.elements;
    if (!o.passed) failed.push_back(o.name);
  }
  const auto count = [](std::size_t n, const char* what) {
    return fmt::format("{} {}{}", grouped(static_cast<double>(n)), what, n == 1 ? "" : "s");
  };
  const std::string text = fmt::format("{} {}, {}, {}: ", outcomes.size(), outcomes.size() == 1 ? "entry" : "entries",
                                       count(tensors, "tensor"), count(elements, "element"));
  if (failed.empty()) return text + "all ok";
  return text + fmt::format("{} failed", failed.size());
}

nlohmann::ordered_json to_json(const std::vector<Outcome>& outcomes, const CheckSettings& settings) {
  nlohmann::ordered_json json = {{"seed", settings.seed}, {"samples", settings.samples}};
  if (!settings.broken_op.empty()) json["break"] = {{"op", settings.broken_op}, {"fault", to_string(settings.fault)}};
  json["passed"] = std::all_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.passed; });
  json["entries"] = nlohmann::ordered_json::array();
  for (const Outcome& o : outcomes) {
    auto checks = nlohmann::ordered_json::array();
    for (const Checked& checked : o.checks)
      checks.push_back(
          {{"variant", checked.variant}, {"report", nlohmann::ordered_json::parse(to_json(checked.report))}});
    json["entries"].push_back({{"kind", o.kind},
                               {"name", o.name},
                               {"passed", o.passed},
                               {"verdict", o.verdict},
                               {"tensors", o.tensors},
                               {"elements", o.elements},
                               {"checks", std::move(checks)}});
  }
  return json;
}

}  // namespace examples
