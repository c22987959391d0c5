#pragma once
// How a user's function is called: with a tape first or without, with as many Vars as there are inputs.

#include <array>
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

/// How f is called with N inputs.
enum class Call { not_at_all, with_vars, with_tape };
template <class T, class F, std::size_t N>
constexpr Call call_with() {
  constexpr std::make_index_sequence<N> inputs;
  if constexpr (takes<T, F>(inputs))
    return Call::with_vars;
  else if constexpr (takes_no_tape<T, F>)
    return Call::not_at_all;
  else
    return takes<T, F, Tape<T>&>(inputs) ? Call::with_tape : Call::not_at_all;
}

/// A function that is called through a pointer to its own: one type for all of them, so that std::function is compiled
/// once.
template <class T>
struct Bound {
  void* f;
  Var<T> (*call)(void* f, Tape<T>& tape, std::span<const Var<T>> x);
  Var<T> operator()(Tape<T>& tape, std::span<const Var<T>> x) const { return call(f, tape, x); }
};

template <class T, class F, std::size_t... I>
Bound<T> with_inputs(F& f, std::index_sequence<I...>) {
  return {const_cast<std::remove_const_t<F>*>(&f),
          [](void* g, Tape<T>& tape, [[maybe_unused]] std::span<const Var<T>> x) -> Var<T> {
            if constexpr (call_with<T, F, sizeof...(I)>() == Call::with_tape)
              return (*static_cast<F*>(g))(tape, Var<T>(x[I])...);
            else
              return (*static_cast<F*>(g))(Var<T>(x[I])...);
          }};
}

/// The least number of inputs, from `least` on, that f takes; most_inputs + 1 if there is none.
template <class T, class F>
constexpr std::size_t next_number_of_inputs(std::size_t least) {
  const auto takes_so_many = []<std::size_t... N>(std::index_sequence<N...>) {
    return std::array{call_with<T, F, N>() != Call::not_at_all...};
  }
  (std::make_index_sequence<most_inputs + 1>());
  while (least <= most_inputs && !takes_so_many[least]) ++least;
  return least;
}

[[noreturn]] void refuse_inputs(std::size_t inputs);

/// f, which must outlive the result, as a function of a number of inputs that is known when the program runs. Throws
/// Error if it cannot be called with so many. (Compiled only for the numbers that f takes.)
template <class T, class F, std::size_t Least = 0>
FunctionOf<T> erased(F& f, std::size_t inputs) {
  constexpr std::size_t number = next_number_of_inputs<T, F>(Least);
  if constexpr (number > most_inputs) {
    refuse_inputs(inputs);
  } else {
    if (inputs == number) return with_inputs<T>(f, std::make_index_sequence<number>());
    return erased<T, F, number + 1>(f, inputs);
  }
}

}  // namespace xtape::detail
