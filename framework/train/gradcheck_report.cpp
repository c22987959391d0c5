#include <xtape/framework/train/gradcheck_report.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>

namespace xtape {
namespace {

/// Elements that were not judged ok, though nothing speaks against them.
bool few_enough(const TensorReport& t) { return t.kinks + t.inconclusive <= std::max<std::size_t>(1, t.checked / 100); }

bool passes(const TensorReport& t) { return t.reason == Reason::ok || (t.reason == Reason::kink && few_enough(t)); }

/// A table whose columns are as wide as what stands in them; the first three are aligned to the left.
std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < row.size(); ++column)
      line += fmt::format(fmt::runtime(column < 3 ? "{:<{}}  " : "{:>{}}  "), row[column], widths[column]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

std::vector<std::string> row(const TensorReport& t) {
  const CheckedElement& w = t.worst;
  std::string checked = std::to_string(t.checked);
  if (t.directions > 0) checked += fmt::format(" + {} directions", t.directions);
  std::string others;
  if (t.kinks > 0) others = fmt::format("{} at kinks", t.kinks);
  if (t.inconclusive > 0) others += fmt::format("{}{} inconclusive", others.empty() ? "" : ", ", t.inconclusive);
  return {to_string(t.reason),
          fmt::format("{} {}", t.name, t.shape),
          t.checked > 0 ? to_string(w.place) : "",
          fmt::format("{:.10g}", w.analytic),
          fmt::format("{:.10g}", w.numeric),
          fmt::format("{:.2g}", w.step),
          fmt::format("{:.2g}", w.bar),
          fmt::format("{:.2g}", w.ratio()),
          checked,
          others};
}

nlohmann::ordered_json number(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity";
}

nlohmann::ordered_json to_json(const CheckedElement& element) {
  return {{"place", std::vector<std::size_t>(element.place.begin(), element.place.end())},
          {"analytic", number(element.analytic)},
          {"numeric", number(element.numeric)},
          {"step", number(element.step)},
          {"bar", number(element.bar)},
          {"ratio", number(element.ratio())}};
}

}  // namespace

const char* to_string(Reason reason) {
  switch (reason) {
    case Reason::ok:
      return "ok";
    case Reason::kink:
      return "kink";
    case Reason::inconclusive:
      return "inconclusive";
    case Reason::mismatch:
      return "mismatch";
    case Reason::no_gradient:
      return "no_gradient";
    case Reason::non_deterministic:
      return "non_deterministic";
    case Reason::non_finite:
      return "non_finite";
  }
  return "";
}

double CheckedElement::ratio() const {
  const double error = std::abs(analytic - numeric);
  if (error == 0) return 0;
  return std::isfinite(error) && bar > 0 ? error / bar : std::numeric_limits<double>::infinity();
}

std::string to_string(const Blame& blame) {
  const std::string where = blame.layer.empty() ? "" : blame.layer + ": ";
  return where + blame.op + (blame.argument.empty() ? "" : ", argument " + blame.argument);
}

GradcheckReport::operator bool() const {
  return problem.empty() && std::all_of(tensors.begin(), tensors.end(), passes);
}

void detail::sort_worst_first(GradcheckReport& report) {
  std::stable_sort(report.tensors.begin(), report.tensors.end(), [](const TensorReport& a, const TensorReport& b) {
    if (a.reason != b.reason) return a.reason > b.reason;
    return a.reason > Reason::kink && a.worst.ratio() > b.worst.ratio();
  });
}

std::string to_string(const GradcheckReport& report) {
  std::string text;
  if (!report.problem.empty()) text += fmt::format("not checked: {}\n", report.problem);
  if (!report.tensors.empty()) {
    std::vector<std::vector<std::string>> rows = {
        {"reason", "tensor", "worst at", "analytic", "numeric", "step", "error bar", "ratio", "checked", ""}};
    for (const TensorReport& t : report.tensors) rows.push_back(row(t));
    text += table(rows);
  }
  for (const TensorReport& t : report.tensors) {
    if (!t.note.empty()) text += fmt::format("{}: {}\n", t.name, t.note);
    if (t.reason == Reason::kink && !few_enough(t))
      text += fmt::format("{}: {} of {} elements stand at kinks; a hundredth of them, or one, may\n", t.name, t.kinks,
                          t.checked);
  }
  for (const Blame& blame : report.blame)
    text += fmt::format("to blame: {} ({} at {}: analytic {:.10g}, numeric {:.10g} +- {:.2g})\n", to_string(blame),
                        to_string(blame.reason), blame.worst.place, blame.worst.analytic, blame.worst.numeric,
                        blame.worst.bar);
  return text;
}

std::ostream& operator<<(std::ostream& out, const GradcheckReport& report) { return out << to_string(report); }

std::string to_json(const GradcheckReport& report) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array(), blame = nlohmann::ordered_json::array();
  for (const TensorReport& t : report.tensors)
    tensors.push_back({{"name", t.name},
                       {"shape", std::vector<std::size_t>(t.shape.begin(), t.shape.end())},
                       {"reason", to_string(t.reason)},
                       {"passed", passes(t)},
                       {"worst", to_json(t.worst)},
                       {"checked", t.checked},
                       {"kinks", t.kinks},
                       {"inconclusive", t.inconclusive},
                       {"directions", t.directions},
                       {"note", t.note}});
  for (const Blame& b : report.blame)
    blame.push_back({{"layer", b.layer},
                     {"op", b.op},
                     {"argument", b.argument},
                     {"reason", to_string(b.reason)},
                     {"worst", to_json(b.worst)}});
  const nlohmann::ordered_json json = {
      {"passed", static_cast<bool>(report)}, {"problem", report.problem}, {"tensors", tensors}, {"blame", blame}};
  // Names may come from anywhere: bytes that are no UTF-8 are replaced.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace xtape
