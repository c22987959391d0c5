#include <xtape/framework/train/safetensors.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include <xtape/framework/base/error.hpp>
#include <xtape/framework/train/misfit.hpp>

namespace xtape {

template <class T>
void save_safetensors(const std::filesystem::path& path, const ParameterList<T>& list, const Metadata& metadata,
                      SaveOptions options) {
  std::vector<NamedArray> arrays;
  for (const auto& [name, parameter] : each_once(list))
    arrays.push_back({name, parameter.shape(), std::span<const T>(parameter.data(), parameter.size()), options.dtype});
  write_safetensors(path, arrays, metadata);
}

template <class T>
void load_safetensors(const std::filesystem::path& path, const ParameterList<T>& list, LoadOptions options) {
  const SafetensorsFile file(path);
  const auto stored_under_another_name = [&](const Parameter<T>& parameter) {
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& entry) { return entry.parameter.is(parameter) && file.contains(entry.name); });
  };
  Misfit misfit;
  for (const auto& [name, parameter] : list) {
    if (!file.contains(name)) {
      if (!stored_under_another_name(parameter)) misfit.missing.push_back(name);
      continue;
    }
    const auto& shape = file.shape(name);
    if (!std::equal(shape.begin(), shape.end(), parameter.shape().begin(), parameter.shape().end()))
      misfit.misshapen.push_back(
          fmt::format("{} must be {}, got ({})", name, parameter.shape(), fmt::join(shape, ", ")));
  }
  for (const std::string& name : file.names())
    if (std::none_of(list.begin(), list.end(), [&](const auto& entry) { return entry.name == name; }))
      misfit.extra.push_back(name);
  if (!options.strict) misfit.missing.clear(), misfit.extra.clear();
  const std::string faults = misfit.text();
  require<FormatError>(faults.empty(), "[safetensors] {}: the file does not fit the model; {}", path.string(), faults);

  std::vector<std::pair<std::size_t, std::vector<T>>> values;  // all is read before anything is changed
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!file.contains(list[i].name)) continue;
    std::vector<T> read = file.read<T>(list[i].name);
    for (const auto& [j, earlier] : values)
      require<FormatError>(!list[j].parameter.is(list[i].parameter) ||
                               std::memcmp(read.data(), earlier.data(), read.size() * sizeof(T)) == 0,
                           "[safetensors] {}: {} and {} are one parameter of the model, but differ in the file",
                           path.string(), list[j].name, list[i].name);
    values.emplace_back(i, std::move(read));
  }
  for (const auto& [i, value] : values) std::copy(value.begin(), value.end(), list[i].parameter.share().write_data());
}

template void save_safetensors(const std::filesystem::path&, const ParameterList<float>&, const Metadata&, SaveOptions);
template void save_safetensors(const std::filesystem::path&, const ParameterList<double>&, const Metadata&,
                               SaveOptions);
template void load_safetensors(const std::filesystem::path&, const ParameterList<float>&, LoadOptions);
template void load_safetensors(const std::filesystem::path&, const ParameterList<double>&, LoadOptions);

}  // namespace xtape
