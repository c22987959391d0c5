#pragma once
// A trainable array that outlives the tapes that use it.

#include <cstdint>
#include <iosfwd>
#include <memory>

#include <xtape/framework/base/memory.hpp>
#include <xtape/framework/base/shape.hpp>

namespace xtape {

/// What a parameter is for. Optimizers decide by it what decays.
enum class Role { weight, bias, gain, embedding };
const char* to_string(Role role);

/// A handle to a trainable array, its gradient and its version. Moving it leaves the array where it is; copying is
/// spelled `share()`, since the copy is tied: both handles are one parameter.
template <class T>
class Parameter {
 public:
  /// Zeros of the given shape.
  explicit Parameter(Shape shape = {0}, Role role = Role::weight);
  Parameter(Parameter&&) noexcept = default;
  Parameter& operator=(Parameter&&) noexcept = default;
  /// Another handle to the same array: how weights are tied.
  Parameter share() const { return Parameter(Tied{}, state_); }
  bool is(const Parameter& other) const { return state_ == other.state_; }

  const Shape& shape() const { return state_->shape; }
  std::size_t size() const { return state_->shape.size(); }
  Role role() const { return state_->role; }
  bool frozen() const { return state_->frozen; }
  /// A frozen parameter takes part in forward but asks for no gradient.
  void freeze(bool frozen = true) { state_->frozen = frozen; }

  /// The values, read only, as an xtensor adaptor (defined in expr.hpp).
  auto value() const;
  /// The values for writing. Every call counts as a new version, and a tape refuses to run backward through an older
  /// one.
  auto write();
  /// The gradient, zero if there is none yet. Asking for it counts as giving it one: has_grad() is true afterwards.
  auto grad();

  /// True if a backward pass (or a call of grad()) has reached this parameter since zero_grad().
  bool has_grad() const { return state_->has_grad; }
  /// Forgets the gradient. Costs nothing: the next backward pass overwrites it.
  void zero_grad() { state_->has_grad = false; }
  std::uint64_t version() const { return state_->version; }

  // Raw memory, for kernels and optimizers.
  const T* data() const { return reinterpret_cast<const T*>(state_->value.get()); }
  T* write_data() {
    ++state_->version;
    return reinterpret_cast<T*>(state_->value.get());
  }
  T* grad_data();
  /// The gradient's memory as it stands, and a mark that it now holds one. For tapes: they know what is there.
  T* touch_grad_data();

 private:
  struct State {
    Shape shape;
    Role role;
    bool frozen = false, has_grad = false;
    std::uint64_t version = 0;
    AlignedBytes value, grad;  // the gradient's from its first touch on: optimizer states have none
  };
  struct Tied {};  // so that Parameter({0}) can only mean a shape
  Parameter(Tied, std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

/// "weight (2, 3): [[...], [...]]"
template <class T>
std::string to_string(const Parameter<T>& parameter);
template <class T>
std::ostream& operator<<(std::ostream& out, const Parameter<T>& parameter);

}  // namespace xtape

template <class T>
struct fmt::formatter<xtape::Parameter<T>> : xtape::detail::ToStringFormatter {};
