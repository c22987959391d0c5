#include <xtape/framework/train/gradcheck/run.hpp>

#include <algorithm>

#include <xtape/framework/train/gradcheck/blame.hpp>
#include <xtape/framework/train/gradcheck/claimed.hpp>
#include <xtape/framework/train/gradcheck/directions.hpp>
#include <xtape/framework/train/gradcheck/tensor.hpp>

namespace xtape::detail {
namespace {

void check_elements(Checked& checked, const Settings& settings, GradcheckReport& report) {
  const Claimed claimed(checked);
  Rounding rounding(checked, claimed);
  const auto objections = claimed.objections(checked);
  checked.check_parameters();
  const Outset outset = outset_of(checked);
  for (std::size_t i = 0; i < checked.count(); ++i) {
    TensorReport& tensor = report.tensors.emplace_back();
    tensor.name = checked.name(i);
    tensor.shape = checked.shape(i);
    if (outset.reason != Reason::ok) {
      tensor.reason = outset.reason;
      tensor.note = outset.note;
      continue;
    }
    check_tensor(checked, i, claimed.gradients[i], outset.middle, rounding, {settings.samples, settings.directions},
                 tensor);
    if (objections[i].reason <= tensor.reason) continue;
    tensor.reason = objections[i].reason;
    tensor.worst = objections[i].where;
    tensor.note = objections[i].note;
  }
  checked.check_parameters();
}

/// Moves everything at once; where that disagrees, each tensor by itself.
void check_directions(Checked& checked, const Settings& settings, GradcheckReport& report) {
  const Claimed claimed(checked);
  Rounding rounding(checked, claimed);
  checked.check_parameters();
  const Outset outset = outset_of(checked);
  TensorReport all{.name = "all inputs and parameters"};
  all.reason = outset.reason;
  all.note = outset.note;
  std::size_t numbers = 0;
  for (std::size_t i = 0; i < checked.count(); ++i) numbers += checked.size(i);
  all.shape = {numbers};
  const bool begun = outset.reason == Reason::ok;
  for (; begun && all.directions < settings.directions; ++all.directions) {
    const auto directions = random_directions(checked, all.directions);
    Pair<Claim> claims;
    for (std::size_t p = 0; p < projections; ++p) {
      Sum sum;
      for (std::size_t i = 0; i < checked.count(); ++i) sum.add(claimed.gradients[i][p], directions[i]);
      claims[p] = sum.claim(outset.middle.at[p], 1e-6);
    }
    const auto found = differentiate(along_all(checked, directions), 1e-3, outset.middle, claims);
    for (std::size_t p = 0; p < projections; ++p) {
      const Derivative& d = found.of[p];
      const CheckedElement here{.analytic = claims[p].analytic, .numeric = d.numeric, .step = d.step, .bar = d.bar};
      const Reason reason = judge(d, claims[p]);
      if (reason < all.reason || (reason == all.reason && !(here.ratio() >= all.worst.ratio()))) continue;
      all.reason = reason;
      all.worst = here;
    }
  }
  report.tensors.push_back(all);
  for (std::size_t i = 0; begun && all.reason > Reason::inconclusive && i < checked.count(); ++i) {
    TensorReport tensor{.name = checked.name(i), .shape = checked.shape(i)};
    check_tensor(checked, i, claimed.gradients[i], outset.middle, rounding,
                 {.samples = 1, .directions = settings.directions}, tensor);
    if (tensor.reason > Reason::inconclusive) report.tensors.push_back(tensor);
  }
  checked.check_parameters();
}

/// Runs a check; what the function does that no function does becomes the report's problem.
template <class Check>
GradcheckReport guarded(const Subject& subject, const Settings& settings, Check check) {
  GradcheckReport report;
  Checked checked(subject.f, subject.shapes, subject.values, subject.parameters, settings.seed);
  const auto changed = [&]() -> std::string {
    try {
      checked.check_parameters();
    } catch (const Misbehaviour& found) {
      return found.what();
    }
    return {};
  };
  try {
    check(checked, settings, report);
  } catch (const Misbehaviour& found) {
    report.problem = found.what();
  } catch (const std::exception& error) {
    report.problem = changed();
    if (report.problem.empty()) report.problem = fmt::format("the function threw: {}", error.what());
  } catch (...) {
    report.problem = "the function threw what is no std::exception";
  }
  sort_worst_first(report);
  return report;
}

/// A failing report with the ops whose backward is wrong. They are sought only in what is a function: if runs of
/// forward differ, or change what they should not, an op tried alone says nothing.
GradcheckReport with_blame(GradcheckReport report, const Subject& subject, const Settings& settings) {
  const auto tried = [](const TensorReport& t) { return t.checked > 0 || t.directions > 0; };
  const bool a_function = report.problem.empty() && std::any_of(report.tensors.begin(), report.tensors.end(), tried);
  if (report || !settings.blame || !a_function) return report;
  try {
    report.blame = find_blame(subject.f, subject.shapes, subject.values, subject.parameters, settings.seed);
  } catch (const std::exception& error) {
    report.problem = fmt::format("the function threw when its ops were tried one by one: {}", error.what());
  }
  return report;
}

}  // namespace

void refuse_inputs(std::size_t inputs) {
  require(inputs <= most_inputs, "[gradcheck] a function of at most {} inputs can be checked, got {}", most_inputs,
          inputs);
  raise("[gradcheck] the function cannot be called with {} inputs", inputs);
}

std::vector<std::vector<double>> normal_inputs(const std::vector<Shape>& shapes, std::uint64_t seed) {
  std::vector<std::vector<double>> values;
  for (const Shape& shape : shapes) values.push_back(normal_values(shape.size(), seed, values.size()));
  return values;
}

GradcheckReport run_gradcheck(const Subject& subject, const Settings& settings) {
  return with_blame(guarded(subject, settings, check_elements), subject, settings);
}

GradcheckReport run_gradcheck_directions(const Subject& subject, const Settings& settings) {
  return with_blame(guarded(subject, settings, check_directions), subject, settings);
}

}  // namespace xtape::detail
