#include <xtape/framework/train/gradcheck/run.hpp>

#include <xtape/framework/train/gradcheck/claimed.hpp>
#include <xtape/framework/train/gradcheck/directions.hpp>
#include <xtape/framework/train/gradcheck/tensor.hpp>

namespace xtape::detail {
namespace {

constexpr const char* forward_differs = "two runs of forward differ";

void check_elements(Checked& checked, const Settings& settings, GradcheckReport& report) {
  const Claimed claimed(checked);
  const auto objections = claimed.objections(checked);
  checked.check_parameters();
  const auto middle = middle_of(checked);
  for (std::size_t i = 0; i < checked.count(); ++i) {
    TensorReport& tensor = report.tensors.emplace_back();
    tensor.name = checked.name(i);
    tensor.shape = checked.shape(i);
    if (!middle) {
      tensor.reason = Reason::non_deterministic;
      tensor.note = forward_differs;
      continue;
    }
    check_tensor(checked, i, claimed.gradients[i], *middle, {settings.samples, settings.directions}, tensor);
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
  checked.check_parameters();
  const auto middle = middle_of(checked);
  TensorReport all{.name = "all inputs and parameters"};
  if (!middle) all.reason = Reason::non_deterministic, all.note = forward_differs;
  std::size_t numbers = 0;
  for (std::size_t i = 0; i < checked.count(); ++i) numbers += checked.size(i);
  all.shape = {numbers};
  for (; middle && all.directions < settings.directions; ++all.directions) {
    const auto directions = random_directions(checked, all.directions);
    Pair<Claim> claims;
    for (std::size_t p = 0; p < projections; ++p) {
      Sum sum;
      for (std::size_t i = 0; i < checked.count(); ++i) sum.add(claimed.gradients[i][p], directions[i]);
      claims[p] = sum.claim(middle->at[p]);
    }
    const auto found = differentiate(along_all(checked, directions), 1e-3, *middle, claims);
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
  for (std::size_t i = 0; middle && all.reason > Reason::inconclusive && i < checked.count(); ++i) {
    TensorReport tensor{.name = checked.name(i), .shape = checked.shape(i)};
    check_tensor(checked, i, claimed.gradients[i], *middle, {.samples = 1, .directions = settings.directions}, tensor);
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

}  // namespace

std::vector<std::vector<double>> normal_inputs(const std::vector<Shape>& shapes, std::uint64_t seed) {
  std::vector<std::vector<double>> values;
  for (const Shape& shape : shapes) values.push_back(normal_values(shape.size(), seed, values.size()));
  return values;
}

GradcheckReport run_gradcheck(const Subject& subject, const Settings& settings) {
  return guarded(subject, settings, check_elements);
}

GradcheckReport run_gradcheck_directions(const Subject& subject, const Settings& settings) {
  return guarded(subject, settings, check_directions);
}

}  // namespace xtape::detail
