#pragma once
// Handles to what stands on a tape. They are small, trivially copyable, and refused once what they name is gone.

#include <cstdint>
#include <iosfwd>

#include <xtape/framework/base/shape.hpp>

namespace xtape {

template <class T>
class Tape;

namespace detail {
/// The number of a node and the stamp under which it was recorded. Stamps are never used twice in a process, so a
/// handle cannot come to name another node by accident.
struct Ticket {
  static constexpr unsigned node_bits = 24, stamp_bits = 40;
  std::uint64_t node : node_bits = 0;
  std::uint64_t stamp : stamp_bits = 0;
};
}  // namespace detail

/// A value on a tape: 16 bytes, passed by copy. A default-constructed Var names nothing and is refused by every op.
template <class T>
class Var {
 public:
  using value_type = T;
  Var() = default;

  Shape shape() const;
  std::size_t size() const { return shape().size(); }
  bool requires_grad() const;
  /// The tape that it lives on. Throws TapeError for a Var that names nothing; `op` names who asks.
  Tape<T>& tape(const char* op = "tape") const;
  /// Name of the op that made it.
  const char* op() const;
  /// Path of the layer whose call made it, "" outside of all (see LayerName).
  const char* layer() const;

  /// The value as an xtensor adaptor on the tape's memory (defined in expr.hpp). To be written by the op that made it,
  /// once.
  auto value() const;
  /// The gradient as an xtensor adaptor, zero-filled on first touch. Throws TapeError if it was released: the gradient
  /// of an intermediate value is kept only if `tape.retain_grad` asked for it.
  auto grad() const;
  /// The only element of a value of size 1.
  T item() const;
  /// The value's memory, row-major, for kernels.
  T* data() const;

 private:
  friend class Tape<T>;
  Var(Tape<T>* tape, detail::Ticket ticket) : tape_(tape), ticket_(ticket) {}
  Tape<T>* tape_ = nullptr;
  detail::Ticket ticket_;
};

/// "softmax (2, 3): [[...], [...]]"
template <class T>
std::ostream& operator<<(std::ostream& out, Var<T> x);
template <class T>
std::string to_string(Var<T> x);

/// A constant array on a tape that is not differentiated: what a mask or a row of tokens becomes.
template <class Element>
struct ConstantArray {
  const Element* data = nullptr;  // row-major
  Shape shape;
  const void* tape = nullptr;
  detail::Ticket ticket;
  explicit operator bool() const { return data != nullptr; }
};
/// Which elements are meant: 1 is true, 0 is false. Made once a batch by `Tape::mask` or `Tape::lengths`.
using Mask = ConstantArray<std::uint8_t>;
/// Tokens, targets, indices. Made by `Tape::integers`, or on the fly by the ops that take an integral expression.
using Integers = ConstantArray<std::int64_t>;

}  // namespace xtape

template <class T>
struct fmt::formatter<xtape::Var<T>> : xtape::detail::ToStringFormatter {};
