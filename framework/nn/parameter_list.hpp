#pragma once
// The parameters of a module by name: what optimizers, clipping, files and the gradient checker need of it.
//
// A module names its members in one place:
//
//   void visit(auto&& f) { f("weight", weight); f("bias", bias); }
//
// A member may be a Parameter, another module, a vector of either (names end in .0, .1, ...) or an optional that may be
// absent.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <xtape/framework/base/layer_name.hpp>
#include <xtape/framework/tape/parameter.hpp>

namespace xtape {

/// One entry: the dotted name and another handle to the parameter, so the entry outlives moves of the module.
template <class T>
struct NamedParameter {
  std::string name;
  Parameter<T> parameter;

  NamedParameter(std::string name_, const Parameter<T>& parameter_)
      : name(std::move(name_)), parameter(parameter_.share()) {}
  NamedParameter(const NamedParameter& other) : NamedParameter(other.name, other.parameter) {}
  NamedParameter(NamedParameter&&) noexcept = default;
  NamedParameter& operator=(const NamedParameter& other) { return *this = NamedParameter(other); }
  NamedParameter& operator=(NamedParameter&&) noexcept = default;
};

template <class T>
using ParameterList = std::vector<NamedParameter<T>>;

namespace detail {

struct AnyMember {
  void operator()(const char*, auto&) const {}
};
template <class M>
concept Module = requires(M& module) {
  module.visit(AnyMember{});
};
template <class M>
concept Optional = requires(M& member) {
  member.has_value(), *member;
};
template <class M>
concept Sequence = requires(M& member) {
  member.begin(), member.size();
};

template <class Member>
inline constexpr bool is_parameter = false;
template <class T>
inline constexpr bool is_parameter<Parameter<T>> = true;

/// Calls found(path, member) for the parameters of a module in order, and for the modules on the way to them.
template <class Member, class Found>
void walk(const std::string& path, Member& member, Found& found) {
  const auto below = [&](const std::string& name) { return path.empty() ? name : path + "." + name; };
  if constexpr (is_parameter<Member>) {
    found(path, member);
  } else if constexpr (Module<Member>) {
    found(path, member);
    member.visit([&](const char* name, auto& inner) { walk(below(name), inner, found); });
  } else if constexpr (Optional<Member>) {
    if (member.has_value()) walk(path, *member, found);
  } else if constexpr (Sequence<Member>) {
    std::size_t i = 0;
    for (auto& inner : member) walk(below(std::to_string(i++)), inner, found);
  } else {
    static_assert(is_parameter<Member>, "visit names Parameters, modules, vectors and optionals");
  }
}

/// Lists each parameter at its first name. (A type of its own, not a lambda of each model: what walks a layer is
/// compiled once.)
template <class T>
struct Lister {
  ParameterList<T> list;
  template <class Member>
  void operator()(const std::string& name, Member& member) {
    if constexpr (is_parameter<Member>) {
      static_assert(std::is_same_v<Member, Parameter<T>>,
                    "parameters<T>(module) asks for the element type of the module's parameters");
      for (const auto& entry : list)
        if (entry.parameter.is(member)) return;
      list.emplace_back(name, member);
    }
  }
};

struct Namer {
  void operator()(const std::string& path, auto& member) const {
    if constexpr (requires { member.name.set(path); }) member.name.set(path);
  }
};
}  // namespace detail

/// The parameters of a module in the order of its visit functions. A parameter that is reached twice (tied weights) is
/// listed once, under its first name.
template <class T, class Module>
ParameterList<T> parameters(Module& module) {
  detail::Lister<T> lister;
  detail::walk("", module, lister);
  return std::move(lister.list);
}

/// The list with each parameter once, under its first name: lists of parts that share a parameter, joined.
template <class T>
ParameterList<T> each_once(const ParameterList<T>& list) {
  ParameterList<T> once;
  for (const auto& entry : list) {
    const auto same = [&](const NamedParameter<T>& earlier) { return earlier.parameter.is(entry.parameter); };
    if (std::none_of(once.begin(), once.end(), same)) once.push_back(entry);
  }
  return once;
}

/// Tells every layer of a model that has a member `LayerName name` its path, so that messages and records carry it. The
/// library's models do this when they are made; a model that holds them calls it again.
template <class Module>
void name_layers(Module& model) {
  const detail::Namer namer;
  detail::walk("", model, namer);
}

/// Number of trainable numbers in the list.
template <class T>
std::size_t count(const ParameterList<T>& list) {
  std::size_t n = 0;
  for (const auto& entry : list) n += entry.parameter.size();
  return n;
}

/// Names of the parameters that no backward pass has reached since zero_grad(): what does not train.
template <class T>
std::vector<std::string> names_without_grad(const ParameterList<T>& list) {
  std::vector<std::string> names;
  for (const auto& entry : list)
    if (!entry.parameter.has_grad()) names.push_back(entry.name);
  return names;
}

/// Forgets all gradients.
template <class T>
void zero_grad(const ParameterList<T>& list) {
  for (const auto& entry : list) entry.parameter.share().zero_grad();
}

}  // namespace xtape
