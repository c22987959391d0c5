#pragma once
// How a user's function is called: with a tape first or without, with as many Vars as there are inputs.

#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include <xtape/framework/tape/tape.hpp>

namespace xtape::detail {

template <class T>
using FunctionOf = std::function<Var<T>(Tape<T>&, std::span<const Var<T>>)>;
/// The function under check.
using CheckedFunction = FunctionOf<double>;

inline constexpr std::size_t most_inputs = 8;

template <class T, class F, class... Tapes, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return std::is_invocable_v<F&, Tapes..., decltype((I, Var<T>()))...>;
}
/// True if f takes some number of Vars and no tape. To ask a generic lambda whether it takes a tape would compile its
/// body with one.
template <class T, class F>
inline constexpr bool takes_no_tape = []<std::size_t... N>(std::index_sequence<N...>) {
  return (takes<T, F>(std::make_index_sequence<N>()) || ...);
}
(std::make_index_sequence<most_inputs + 1>());

/// f as a function of N inputs; empty if it is not one.
template <class T, class F, std::size_t... I>
FunctionOf<T> with_inputs(F& f, std::index_sequence<I...> inputs) {
  if constexpr (takes<T, F>(inputs)) {
    return [&f](Tape<T>&, [[maybe_unused]] std::span<const Var<T>> x) -> Var<T> { return f(Var<T>(x[I])...); };
  } else {
    if constexpr (!takes_no_tape<T, F>) {
      if constexpr (takes<T, F, Tape<T>&>(inputs))
        return [&f](Tape<T>& tape, [[maybe_unused]] std::span<const Var<T>> x) -> Var<T> {
          return f(tape, Var<T>(x[I])...);
        };
    }
    return {};
  }
}

/// f, which must outlive the result, as a function of a number of inputs that is known when the program runs. Throws
/// Error if it cannot be called with so many.
template <class T, class F, std::size_t N = 0>
FunctionOf<T> erased(F& f, std::size_t inputs) {
  if (inputs == N) {
    FunctionOf<T> function = with_inputs<T>(f, std::make_index_sequence<N>());
    require(static_cast<bool>(function), "[gradcheck] the function cannot be called with {} inputs", inputs);
    return function;
  }
  if constexpr (N < most_inputs)
    return erased<T, F, N + 1>(f, inputs);
  else
    raise("[gradcheck] a function of at most {} inputs can be checked, got {}", most_inputs, inputs);
}

}  // namespace xtape::detail
