#pragma once
// What can be checked, by name: every op, every layer and every model.

#include <functional>
#include <string>
#include <vector>

#include <xtape/framework/train/gradcheck.hpp>
#include "gradient_check/planted_fault.hpp"
#include "op_cases/table.hpp"

namespace examples {

struct CheckSettings {
  std::uint64_t seed = 0;      // of inputs, parameters and projections
  std::size_t samples = 0;     // elements of each tensor that are checked; 0: the checker's default
  std::size_t directions = 2;  // random ones through each tensor of which only a sample is checked
  std::string broken_op;       // no fault if empty
  Fault fault = Fault::factor;
};

/// What one check found.
struct Checked {
  std::string variant;  // which of the entry's checks it was; "" if there is but one
  xtape::GradcheckReport report;
  std::size_t planted = 0;  // callbacks that the fault stood in for
};

struct Check {
  std::string variant;
  std::function<Checked(const CheckSettings&)> run;
};

struct Entry {
  std::string kind;  // "op", "layer" or "model"
  std::string name;
  std::vector<Check> checks;
};

/// One entry an op, with all rows of the table of ops.
std::vector<Entry> op_entries();
std::vector<Entry> layer_entries();
std::vector<Entry> model_entries();
/// All of them.
std::vector<Entry> all_entries();

// ---- for those who make entries

using Inputs = std::vector<xt::xarray<double>>;
using Function = std::function<xtape::Var<double>(xtape::Tape<double>&, std::span<const xtape::Var<double>>)>;

/// Checks the function, with the fault of the settings.
Checked check(const Function& f, Inputs inputs, xtape::ParameterList<double> parameters, const CheckSettings& settings);
/// Moves parameters away from 0 and 1, where a wrong gradient may be right by accident.
void shake(xtape::ParameterList<double> parameters, std::uint64_t seed);

/// A check of a module: `make(rng)` gives it, `call(module, tape, inputs)` its output at random inputs.
template <class Make, class Call>
Check module_check(std::vector<xtape::Shape> shapes, Make make, Call call) {
  return {"", [=](const CheckSettings& settings) {
            xtape::Rng rng(settings.seed);
            auto module = make(rng);
            xtape::name_layers(module);
            const auto list = xtape::parameters<double>(module);
            shake(list, settings.seed);
            const auto f = [&](xtape::Tape<double>& tape, std::span<const xtape::Var<double>> x) {
              return call(module, tape, x);
            };
            return check(f, xtape::op_cases::random_inputs(shapes, settings.seed), list, settings);
          }};
}

}  // namespace examples
