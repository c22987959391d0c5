#pragma once
// A right op made wrong on purpose: what the gradient checker has to find.

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include <xtape/framework/base/random.hpp>
#include <xtape/framework/tape/observer.hpp>

namespace examples {

/// What becomes of what a callback adds to one gradient.
enum class Fault {
  factor,      // 1.01 times as much
  sign,        // its negative
  element,     // 1e-3 more in one element
  overwrite,   // put in place of what stood there, as = does where += should stand
  upstream,    // as if the gradient of every output were 1
  term,        // without what one element of the output contributes
  transposed,  // the last two axes exchanged in memory
  zeros,       // nothing
  nan,         // NaN in one element
  noise,       // 1e-3 times a normal number more in each element, others in each run
  none         // the callback does not run at all
};
inline constexpr std::array all_faults = {Fault::factor,   Fault::sign,  Fault::element,    Fault::overwrite,
                                          Fault::upstream, Fault::term,  Fault::transposed, Fault::zeros,
                                          Fault::nan,      Fault::noise, Fault::none};
/// "factor"
const char* to_string(Fault fault);
/// "1.01 times the gradient"
const char* description(Fault fault);
std::optional<Fault> fault_named(std::string_view name);

/// Plants a fault into the callback of every op of one name. A function makes it so with tape.observe(fault), also when
/// it is called again; the fault has to live as long as the tape.
class PlantedFault : public xtape::TapeObserver<double> {
 public:
  /// The fault concerns the first input that wants a gradient, counted from `argument`.
  PlantedFault(std::string op, Fault fault, std::size_t argument = 0)
      : op_(std::move(op)), fault_(fault), argument_(argument) {}
  void backward(xtape::Var<double> y, const std::function<void()>& run) override;
  /// The element that `element` and `nan` change.
  static std::size_t changed_element(std::size_t size) { return size / 2; }
  /// How many callbacks it stood in for.
  std::size_t times() const { return times_; }

 private:
  std::string op_;
  Fault fault_;
  std::size_t argument_, times_ = 0;
  xtape::Rng noise_;
};

}  // namespace examples
