#include <xtape/framework/train/parameter_group.hpp>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace xtape {
namespace {

/// Whether a text fits a pattern in which * stands for any characters.
bool fits(std::string_view text, std::string_view pattern) {
  std::size_t t = 0, p = 0, star = pattern.npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != pattern.npos) {  // let the last star take one character more
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

void require_size(const char* op, const char* what, double x) {
  require(x >= 0 && std::isfinite(x), "[{}] {} must be finite and not negative, got {}", op, what, x);
}

}  // namespace

std::string to_string(const ParameterGroup& group) {
  return group.role ? fmt::format("{} ({})", group.name, to_string(*group.role)) : group.name;
}

std::string to_string(const std::vector<ParameterSettings>& settings) {
  const auto role = [](const ParameterSettings& s) {
    return fmt::format("{}{}", to_string(s.role), s.frozen ? ", frozen" : "");
  };
  std::size_t names = 9, roles = 4;
  for (const ParameterSettings& s : settings) {
    names = std::max(names, s.name.size());
    roles = std::max(roles, role(s).size());
  }
  std::string text;
  const auto line = [&](const auto& name, const auto& role, const auto& rate, const auto& decay, const auto& group) {
    text += fmt::format("{:<{}}  {:<{}}  {:>13}  {:>12}  {}", name, names, role, roles, rate, decay, group);
    text.erase(text.find_last_not_of(' ') + 1) += '\n';
  };
  line("parameter", "role", "learning rate", "weight decay", "group");
  for (const ParameterSettings& s : settings) line(s.name, role(s), s.learning_rate, s.weight_decay, s.group);
  return text;
}

template <class T>
std::vector<detail::Share> detail::shares(const char* op, const ParameterList<T>& list, double weight_decay,
                                          Decay decay, const std::vector<ParameterGroup>& groups) {
  require_size(op, "weight decay", weight_decay);
  for (const ParameterGroup& group : groups) {
    require_size(op, "a group's learning rate factor", group.learning_rate_factor);
    require_size(op, "a group's weight decay", group.weight_decay.value_or(0));
  }
  std::vector<Share> shares;
  std::vector<bool> fitted(groups.size()), used(groups.size());
  for (const auto& [name, parameter] : list) {
    Share share{1, decay == Decay::all || parameter.role() == Role::weight ? weight_decay : 0, {}};
    for (std::size_t i = groups.size(); i-- > 0;) {
      if (!fits(name, groups[i].name) || parameter.role() != groups[i].role.value_or(parameter.role())) continue;
      fitted[i] = true;
      share.group = i;  // in the end the first
    }
    if (share.group) {
      const ParameterGroup& group = groups[*share.group];
      used[*share.group] = true;
      share.learning_rate_factor = group.learning_rate_factor;
      share.weight_decay = group.weight_decay.value_or(share.weight_decay);
    }
    shares.push_back(share);
  }
  for (std::size_t i = 0; i < groups.size(); ++i)
    require(used[i], "[{}] every group needs a parameter of its own, got the group {} with {}", op,
            to_string(groups[i]), fitted[i] ? "only parameters of earlier groups" : "none");
  return shares;
}

template std::vector<detail::Share> detail::shares(const char*, const ParameterList<float>&, double, Decay,
                                                   const std::vector<ParameterGroup>&);
template std::vector<detail::Share> detail::shares(const char*, const ParameterList<double>&, double, Decay,
                                                   const std::vector<ParameterGroup>&);

}  // namespace xtape
