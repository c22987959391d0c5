#pragma once
// Parameters in files of the safetensors format.

#include <filesystem>
#include <optional>

#include <xtape/framework/nn/parameter_list.hpp>
#include <xtape/framework/train/safetensors_file.hpp>

namespace xtape {

struct SaveOptions {
  std::optional<Dtype> dtype = {};  // F64, F32, F16 or BF16; by default that of T
};
/// Writes the parameters by their names, as write_safetensors does. A parameter that is listed under several names is
/// written once, under the first.
template <class T>
void save_safetensors(const std::filesystem::path& path, const ParameterList<T>& list, const Metadata& metadata = {},
                      SaveOptions options = {});

struct LoadOptions {
  bool strict = true;  // false: names that only one side has are passed over
};
/// Fills the parameters from a file of the same names and shapes; F64, F32, F16 and BF16 are converted. A parameter
/// that is listed under several names needs only one of them in the file; if there are more, they must agree. All names
/// that are missing, extra or of another shape stand in one FormatError (of extra ones a hundred), and then no
/// parameter is changed.
template <class T>
void load_safetensors(const std::filesystem::path& path, const ParameterList<T>& list, LoadOptions options = {});

}  // namespace xtape
