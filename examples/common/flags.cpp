#include "common/flags.hpp"

#include <CLI/CLI.hpp>

#include <xtape/framework/base/error.hpp>

namespace examples {
namespace {

void allow(CLI::Option&, const Anything&) {}
template <class T>
void allow(CLI::Option& option, const Range<T>& range) {
  option.check(CLI::Range(range.least, range.greatest));
}
void allow(CLI::Option& option, const OneOf& one_of) { option.check(CLI::IsMember(one_of.words)); }

/// Refuses nan and inf, which would pass for numbers.
CLI::Validator a_number() {
  return CLI::Validator(
      [](std::string& text) {
        return text.find_first_of("nN") == std::string::npos ? "" : "Value " + text + " is no number";
      },
      "");
}

/// CLI11 would show an empty list as [].
template <class T>
bool has_default(const T&) {
  return true;
}
template <class T>
bool has_default(const std::vector<T>&) {
  return false;
}

}  // namespace

Flags::Flags(const std::string& description, const std::string& program)
    : app_(std::make_unique<CLI::App>(description, program)) {}
Flags::~Flags() = default;

template <class T>
void Flags::add(const std::string& name, T& variable, const std::string& help, const FlagOptions& options) {
  CLI::Option& option = *app_->add_option(name, variable, help);
  std::visit([&](const auto& allowed) { allow(option, allowed); }, options.allowed);
  if constexpr (std::is_same_v<T, double>) option.check(a_number());
  option.required(options.required);
  if (!options.needs.empty()) option.needs(app_->get_option(options.needs));
  if (options.show_default && has_default(variable)) option.capture_default_str();
}

template void Flags::add(const std::string&, bool&, const std::string&, const FlagOptions&);
template void Flags::add(const std::string&, int&, const std::string&, const FlagOptions&);
template void Flags::add(const std::string&, std::size_t&, const std::string&, const FlagOptions&);
template void Flags::add(const std::string&, double&, const std::string&, const FlagOptions&);
template void Flags::add(const std::string&, std::string&, const std::string&, const FlagOptions&);
template void Flags::add(const std::string&, std::vector<std::string>&, const std::string&, const FlagOptions&);
template void Flags::add(const std::string&, std::vector<std::int64_t>&, const std::string&, const FlagOptions&);

void Flags::add_with_or_without_value(const std::string& name, std::optional<std::string>& variable,
                                      const std::string& value, const std::string& help) {
  const auto read = [&variable](const std::vector<std::string>& given) {
    variable = given.empty() ? "" : given[0];
    return true;
  };
  app_->add_option(name, read, help)->expected(0, 1)->type_name("[" + value + "]");
}

void Flags::add_switch(const std::string& name, bool& variable, const std::string& help) {
  app_->add_flag(name, variable, help);
}

void Flags::add_read(const std::string& name, std::function<void(const std::string&)> read,
                     const std::string& shown_default, const std::string& help) {
  const auto callback = [read = std::move(read), name](const std::string& text) {
    try {
      read(text);
    } catch (const xtape::Error& error) {
      throw CLI::ValidationError(name, error.what());
    }
  };
  app_->add_option_function<std::string>(name, callback, help)->run_callback_for_default()->default_str(shown_default);
}

void Flags::set_default(const std::string& name, const std::string& value) {
  try {
    app_->get_option(name)->default_val(value);
  } catch (const CLI::ParseError& error) {
    const std::string text = error.what();
    throw xtape::Error(text.starts_with("--") ? text.substr(2) : text);
  }
}

std::optional<int> Flags::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return {};
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : 1;
  }
}

void Flags::parse_known(int argc, char** argv) {
  app_->set_help_flag();
  app_->allow_extras();
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    throw xtape::Error(error.what());
  }
}

std::vector<std::string> Flags::given() const {
  std::vector<std::string> names;
  for (const CLI::Option* option : app_->get_options())
    if (option->count() > 0) names.push_back(option->get_name());
  return names;
}

bool Flags::given(const std::string& name) const { return app_->count(name) > 0; }

}  // namespace examples
