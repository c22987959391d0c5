// Every fault in every op of the catalogue, planted one at a time, and what the gradient checker says.

#include <map>
#include <numeric>
#include <set>

#include "gradient_check/planted_fault.hpp"
#include "op_cases/table.hpp"
#include "support.hpp"

namespace xtape::planted_faults_test {
namespace {

using examples::all_faults;
using examples::Fault;
using examples::PlantedFault;
using Arrays = std::vector<xt::xarray<double>>;

Var<double> call(const OpCase& row, const std::vector<Var<double>>& x, PlantedFault* fault) {
  Tape<double>& tape = x[0].tape();
  if (fault != nullptr) tape.observe(*fault);
  tape.set_step(0);
  return row.op.in_double(x);
}

/// What a backward adds to the gradients of a row's inputs, in which random numbers stand.
Arrays added_gradients(const OpCase& row, PlantedFault* fault) {
  Tape<double> tape;
  std::vector<Var<double>> x;
  for (const auto& input : op_cases::inputs_of(row, 0)) x.push_back(tape.input(input, true));
  const Var<double> y = call(row, x, fault);
  Arrays before, added;
  for (const Var<double> v : x) {
    before.push_back(random_array<double>(v.shape(), 100 + before.size()));
    xt::noalias(v.grad()) = before.back();
  }
  if (y.requires_grad()) tape.backward(y, random_array<double>(y.shape(), 7));
  for (std::size_t i = 0; i < x.size(); ++i) added.push_back(x[i].grad() - before[i]);
  return added;
}

/// How far each element is off; infinity where one is NaN.
xt::xarray<double> changes(const xt::xarray<double>& wrong, const xt::xarray<double>& right) {
  xt::xarray<double> result = xt::abs(wrong - right);
  for (double& x : result)
    if (std::isnan(x)) x = std::numeric_limits<double>::infinity();
  return result;
}
double largest(const xt::xarray<double>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0, [](double a, double b) { return std::max(a, b); });
}

/// Below this a gradient is as good as unchanged: rounding.
constexpr double unchanged = 1e-9;

/// Where a fault is planted: an argument of an op in the row of the table that suits it best.
struct Place {
  const OpCase* row;
  std::string op;         // whose callback it is: the row's, or what the row's op is made of
  std::size_t arguments;  // of the op, that want a gradient
  std::vector<std::pair<std::size_t, Fault>> invisible;  // argument and fault, where the fault changes nothing
};

/// Ops that are made of others, and of which.
const std::map<std::string, std::string> made_of = {{"einsum", "matmul"}, {"split", "slice"}, {"stack", "concat"}};

/// How many arguments that want a gradient the op has in the row's record; 0 if it has no callback there.
std::size_t arguments_of(const OpCase& row, const std::string& op) {
  Tape<double> tape;
  std::vector<Var<double>> x;
  for (const auto& input : op_cases::inputs_of(row, 0)) x.push_back(tape.input(input, true));
  const Var<double> y = call(row, x, nullptr);
  if (!y.requires_grad()) return 0;
  PlantedFault counter(op, Fault::factor);
  tape.observe(counter);
  tape.backward(y, random_array<double>(y.shape(), 7));
  if (counter.times() == 0) return 0;
  for (std::size_t place = tape.place(y) + 1; place-- > 0;)
    if (tape.at(place).op() == op) {
      const auto inputs = tape.inputs(tape.at(place));
      return static_cast<std::size_t>(
          std::count_if(inputs.begin(), inputs.end(), [](Var<double> input) { return input.requires_grad(); }));
    }
  return 0;
}

Place place_in(const OpCase& row) {
  const auto inner = made_of.find(row.name);
  const std::string op = inner == made_of.end() ? row.name : inner->second;
  Place place{&row, op, arguments_of(row, op), {}};
  const Arrays right = added_gradients(row, nullptr);
  for (std::size_t argument = 0; argument < place.arguments; ++argument)
    for (const Fault fault : all_faults) {
      PlantedFault planted(op, fault, argument);
      const Arrays wrong = added_gradients(row, &planted);
      double most = 0;
      for (std::size_t i = 0; i < right.size(); ++i) most = std::max(most, largest(changes(wrong[i], right[i])));
      if (most < unchanged) place.invisible.emplace_back(argument, fault);
    }
  return place;
}

std::size_t elements_of(const OpCase& row) {
  std::size_t elements = 0;
  for (const Shape& shape : row.inputs) elements += shape.size();
  return elements;
}

/// For each op a small row: one with the most arguments, of these one in which most faults show, of these the smallest.
/// Ops without a callback have no place.
std::map<std::string, Place> places() {
  constexpr std::size_t most_elements = 300;
  std::map<std::string, Place> result;
  for (const OpCase& row : op_cases::table()) {
    if (elements_of(row) == 0 || elements_of(row) > most_elements) continue;
    const Place place = place_in(row);
    if (place.arguments == 0) continue;
    const auto [known, added] = result.emplace(row.name, place);
    const auto rank = [](const Place& p) {
      return std::tuple(-static_cast<int>(p.arguments), p.invisible.size(), elements_of(*p.row));
    };
    if (!added && rank(place) < rank(known->second)) known->second = place;
  }
  return result;
}

// ---- the checker's answer

/// The report has to speak against the tensors whose gradients changed and no others, and to name an element that is
/// wrong: by more than ten error bars, so that it could be seen.
void expect_found(const Place& place, std::size_t argument, Fault fault) {
  SCOPED_TRACE(fmt::format("{}, argument {}, fault {}", to_string(*place.row), argument, to_string(fault)));
  PlantedFault for_gradients(place.op, fault, argument), for_check(place.op, fault, argument);
  const Arrays right = added_gradients(*place.row, nullptr), wrong = added_gradients(*place.row, &for_gradients);
  const auto f = [&](Tape<double>&, auto... x) { return call(*place.row, {x...}, &for_check); };
  const GradcheckReport report = gradcheck_at(f, op_cases::inputs_of(*place.row, 0));
  ASSERT_FALSE(report) << report;

  for (std::size_t i = 0; i < right.size(); ++i) {
    const std::string name = fmt::format("input {}", i);
    const auto tensor = std::find_if(report.tensors.begin(), report.tensors.end(),
                                     [&](const TensorReport& t) { return t.name == name; });
    ASSERT_NE(tensor, report.tensors.end()) << report;
    const xt::xarray<double> changed = changes(wrong[i], right[i]);
    const bool passes = tensor->reason == Reason::ok || tensor->reason == Reason::kink;
    EXPECT_EQ(passes, largest(changed) < unchanged) << name << "\n" << report;
    if (passes) continue;
    const auto& worst = tensor->worst;
    EXPECT_GT(changed[xt::xindex(worst.place.begin(), worst.place.end())], 10 * worst.bar) << report;
  }
  ASSERT_FALSE(report.blame.empty()) << report;
  for (const Blame& blame : report.blame) EXPECT_EQ(blame.op, place.op) << report;
}

// ---- what cannot be seen

/// Ops that have no callback to plant a fault into.
const std::map<std::string, const char*> without_callback = {
    {"reshape", "shares its gradient with its source"},
    {"detach", "has no gradient"},
    {"one_hot", "is constant"},
};

struct Invisible {
  std::string op;
  std::size_t argument;
  Fault fault;
  const char* reason;
};
const std::vector<Invisible> invisible = {
    {"concat", 2, Fault::transposed, "a part of one column"},
    {"layer_norm", 1, Fault::transposed, "the gain is a vector"},
    {"layer_norm", 2, Fault::transposed, "the bias is a vector"},
    {"linear", 2, Fault::transposed, "the bias is a vector"},
    {"linear_gelu", 2, Fault::transposed, "the bias is a vector"},
    {"linear_gelu_tanh", 2, Fault::transposed, "the bias is a vector"},
    {"rms_norm", 1, Fault::transposed, "the gain is a vector"},
};

TEST(PlantedFaults, HaveAPlaceInEveryOp) {
  const auto all = places();
  std::set<std::string> missing;
  for (const OpCase& row : op_cases::table())
    if (!all.contains(row.name)) missing.insert(row.name);
  std::set<std::string> expected;
  for (const auto& [op, reason] : without_callback) expected.insert(op);
  EXPECT_EQ(missing, expected);
}

TEST(PlantedFaults, ChangeNothingInFewPlacesAndThereForAReason) {
  std::set<std::string> found, expected;
  const auto text = [](const std::string& op, std::size_t argument, Fault fault) {
    return fmt::format("{} {} {}", op, argument, to_string(fault));
  };
  std::size_t pairs = 0;
  for (const auto& [op, place] : places()) {
    pairs += place.arguments * all_faults.size();
    for (const auto& [argument, fault] : place.invisible) found.insert(text(op, argument, fault));
  }
  for (const Invisible& pair : invisible) expected.insert(text(pair.op, pair.argument, pair.fault));
  EXPECT_EQ(found, expected);
  EXPECT_GT(pairs, 900U);
  const std::size_t without = without_callback.size() * all_faults.size();
  EXPECT_LE(20 * (found.size() + without), pairs + without) << "more than 5 %";
  RecordProperty("pairs", static_cast<int>(pairs));
}

TEST(PlantedFaults, AreFoundNamedAndBlamed) {
#ifdef __SANITIZE_ADDRESS__
  constexpr std::size_t stride = 5;  // memory errors are those of ops and checker, which others tests try as well
#else
  constexpr std::size_t stride = 1;
#endif
  std::size_t number = 0;
  for (const auto& [op, place] : places()) {
    if (number++ % stride != 0) continue;
    for (std::size_t argument = 0; argument < place.arguments; ++argument)
      for (const Fault fault : all_faults)
        if (std::find(place.invisible.begin(), place.invisible.end(), std::pair(argument, fault)) ==
            place.invisible.end())
          expect_found(place, argument, fault);
  }
}

}  // namespace
}  // namespace xtape::planted_faults_test
