#pragma once
// One file of tests/reference: what PyTorch or NumPy computed in double, and the test that xtape computes the same.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "support.hpp"

namespace xtape {

/// The arrays and settings of one file. It remembers which arrays nobody has looked at, so that a test cannot leave one
/// out.
class ReferenceFile {
 public:
  explicit ReferenceFile(const std::string& name) : file_(reference_folder() / (name + ".safetensors")) {
    for (const std::string& array : file_.names()) unread_.insert(array);
  }

  template <class T>
  xt::xarray<T> array(const std::string& name) {
    unread_.erase(name);
    const std::vector<T> elements = file_.read<T>(name);
    xt::xarray<T> x = zeros_of<T>(Shape(file_.shape(name)));
    std::copy(elements.begin(), elements.end(), x.begin());
    return x;
  }
  xt::xarray<std::int64_t> integers(const std::string& name) { return array<std::int64_t>(name); }
  /// A mask of PyTorch's (true = may not attend) the other way round: true = may be attended to.
  xt::xarray<bool> allowed(const std::string& name) { return xt::equal(integers(name), 0); }

  bool contains(const std::string& name) const { return file_.contains(name); }
  bool is_mask(const std::string& name) const { return file_.dtype(name) == "BOOL"; }
  bool has_setting(const std::string& key) const { return file_.metadata().contains(key); }
  std::string setting(const std::string& key) const { return file_.metadata().at(key); }
  std::size_t number(const std::string& key) const { return std::stoul(setting(key)); }
  double real(const std::string& key) const { return std::stod(setting(key)); }
  double real(const std::string& key, double otherwise) const {
    return file_.metadata().contains(key) ? real(key) : otherwise;
  }
  bool flag(const std::string& key) const { return setting(key) == "True"; }

  void expect_all_read() const {
    for (const std::string& name : unread_) ADD_FAILURE() << "the test does not look at the array " << name;
  }
  /// For a test of a path that does not make this array.
  void leave_out(const std::string& name) { unread_.erase(name); }

 private:
  SafetensorsFile file_;
  std::set<std::string> unread_;
};

template <class T>
inline constexpr double reference_tolerance = sizeof(T) == sizeof(float) ? tolerance::float_against_double
                                                                         : tolerance::reference;

/// A file with an `output`, the `grad_output` from above, and `grad.NAME` of every input and parameter.
template <class T>
class ReferenceCase {
 public:
  explicit ReferenceCase(const std::string& name, double tolerance = reference_tolerance<T>)
      : file(name), tolerance_(tolerance) {}

  ReferenceFile file;
  Tape<T> tape;

  /// The named array as an input whose gradient is checked.
  Var<T> leaf(const std::string& name) {
    return leaves_[name] = tape.input(file.template array<T>(name), /*requires_grad=*/true);
  }
  /// Fills the module's parameters, whose gradients are then checked as well.
  template <class Module>
  void load(Module& module) {
    parameters_ = parameters<T>(module);
    for (auto& [name, parameter] : parameters_) xt::noalias(parameter.write()) = file.template array<T>(name);
  }
  /// Causality as the file's settings say, its padding mask and its mask of pairs, if it has them.
  Attend<T> attend() {
    Attend<T> attend{.causal = file.flag("causal")};
    if (file.contains("key_padding_mask")) attend.allow_keys = tape.mask(file.allowed("key_padding_mask"));
    if (file.contains("attn_mask")) {
      if (file.is_mask("attn_mask"))
        attend.allow = tape.mask(file.allowed("attn_mask"));
      else
        attend.bias = tape.input(file.template array<T>("attn_mask"));
    }
    return attend;
  }

  template <class Array>
  void expect(const std::string& name, const Array& array) {
    EXPECT_TRUE(near(array, file.template array<double>(name), tolerance_)) << name;
  }
  /// The output, every gradient, and nothing of the file left over.
  void expect_output(Var<T> output) {
    expect("output", output.value());
    tape.backward(output, file.template array<T>("grad_output"));
    for (const auto& [name, leaf] : leaves_) expect("grad." + name, leaf.grad());
    for (auto& [name, parameter] : parameters_) expect("grad." + name, parameter.grad());
    file.expect_all_read();
  }

 private:
  double tolerance_;
  std::map<std::string, Var<T>> leaves_;
  ParameterList<T> parameters_;
};

}  // namespace xtape
