#pragma once
// Settings of some of an optimizer's parameters that differ from those of the others.

#include <optional>
#include <string>
#include <vector>

#include <xtape/framework/nn/parameter_list.hpp>

namespace xtape {

/// Which parameters decay: those of role weight alone (not biases, gains and embeddings), or all.
enum class Decay { weights, all };

/// Parameters by name and role, and their settings:
///
///   AdamW<float> optimizer(list, {.learning_rate = 1e-3,
///                                 .groups = {{.name = "blocks.0.*", .learning_rate_factor = 0.1},
///                                            {.role = Role::embedding, .weight_decay = 0.01}}});
///
/// A parameter belongs to the first group that it fits; what fits none keeps the optimizer's settings. A group without
/// a parameter of its own is an Error with the group's name.
struct ParameterGroup {
  std::string name = "*";                   // of the parameters; * stands for any characters, also none
  std::optional<Role> role = {};            // and only those of this role
  double learning_rate_factor = 1;          // times the optimizer's rate, also when that changes
  std::optional<double> weight_decay = {};  // of all members, whatever their role; absent: as for other parameters
};
/// "blocks.0.*", or "* (embedding)" with a role.
std::string to_string(const ParameterGroup& group);

/// What an optimizer does to one parameter.
struct ParameterSettings {
  std::string name;
  Role role;
  bool frozen;  // then it neither moves nor decays
  double learning_rate, weight_decay;
  std::string group;  // "" if it is in none
};
/// A table with a line for each parameter.
std::string to_string(const std::vector<ParameterSettings>& settings);

namespace detail {

/// A parameter's share of an optimizer's options: the rate's factor, the decay, and which of the groups, if any.
struct Share {
  double learning_rate_factor, weight_decay;
  std::optional<std::size_t> group;
};
/// One share for each parameter. `op` names the optimizer in errors.
template <class T>
std::vector<Share> shares(const char* op, const ParameterList<T>& list, double weight_decay, Decay decay,
                          const std::vector<ParameterGroup>& groups);

}  // namespace detail
}  // namespace xtape
