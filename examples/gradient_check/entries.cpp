#include "gradient_check/entries.hpp"

namespace examples {

using namespace xtape;

Checked check(const Function& f, Inputs inputs, ParameterList<double> parameters, const CheckSettings& settings) {
  PlantedFault fault(settings.broken_op, settings.fault);
  const auto watched = [&](Tape<double>& tape, auto... x) {
    if (!settings.broken_op.empty()) tape.observe(fault);
    tape.set_step(0);  // dropout drops the same elements in every run
    return f(tape, std::vector<Var<double>>{x...});
  };
  GradcheckOptions options;
  options.seed = settings.seed;
  options.parameters = std::move(parameters);
  options.samples = settings.samples;
  options.directions = settings.directions;
  Checked checked;
  checked.report = gradcheck_at(watched, std::move(inputs), std::move(options));
  checked.planted = fault.times();
  return checked;
}

void shake(ParameterList<double> parameters, std::uint64_t seed) {
  Rng rng(seed, std::uint64_t{1} << 32);
  for (auto& [name, parameter] : parameters)
    for (double& x : parameter.write()) x += 0.3 * rng.normal();
}

std::vector<Entry> all_entries() {
  std::vector<Entry> entries;
  for (const auto& some : {op_entries(), layer_entries(), model_entries()})
    entries.insert(entries.end(), some.begin(), some.end());
  return entries;
}

}  // namespace examples
