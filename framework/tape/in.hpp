#pragma once
// What an op's further operands accept.

#include <type_traits>
#include <variant>

#include <xtape/framework/tape/tape.hpp>

namespace xtape {
namespace detail {
template <class N>
concept Number = std::is_arithmetic_v<N>;
}

/// A Var, a Parameter or a number. An op takes its first operand as Var<T>, which names the type and the tape, and the
/// others as `std::type_identity_t<In<T>>`.
template <class T>
class In {
 public:
  In(Var<T> x) : operand_(x) {}
  In(const Parameter<T>& p) : operand_(&p) {}
  template <detail::Number N>
  In(N x) : operand_(static_cast<T>(x)) {}

  /// The operand as a Var on the given tape.
  Var<T> on(Tape<T>& tape) const {
    if (const auto* x = std::get_if<Var<T>>(&operand_)) return *x;
    if (const auto* p = std::get_if<const Parameter<T>*>(&operand_)) return tape.var(**p);
    return tape.number(std::get<T>(operand_));
  }

 private:
  std::variant<Var<T>, const Parameter<T>*, T> operand_;
};

}  // namespace xtape
