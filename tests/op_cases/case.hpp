#pragma once
// What a row of the table of ops is (see table.hpp).

#include <memory>
#include <span>
#include <string>
#include <vector>
#include <xtape/framework/ops/reference.hpp>
#include <xtape/xtape.hpp>

namespace xtape {

/// Where an op's inputs are drawn from.
enum class Domain {
  normal,
  positive,   // between 0.5 and 2.5
  off_kinks,  // normal, at least 0.1 from 0
};

/// An op of the table for both element types. (Virtual, since std::function would take long to compile for so many.)
struct AnyOp {
  virtual ~AnyOp() = default;
  virtual Var<float> call(std::span<const Var<float>> x) const = 0;
  virtual Var<double> call(std::span<const Var<double>> x) const = 0;
};
template <class F>
struct OpOf final : AnyOp {
  F f;
  explicit OpOf(const F& f_) : f(f_) {}
  Var<float> call(std::span<const Var<float>> x) const override { return f(x); }
  Var<double> call(std::span<const Var<double>> x) const override { return f(x); }
};

/// A function of Vars.
template <class T>
struct OpFunction {
  std::shared_ptr<const AnyOp> op = {};
  Var<T> operator()(std::span<const Var<T>> x) const { return op->call(x); }
};

/// A function of Vars for both element types.
struct OpPair {
  OpFunction<float> in_float;
  OpFunction<double> in_double;
  template <class T>
  const OpFunction<T>& of() const {
    if constexpr (std::is_same_v<T, float>)
      return in_float;
    else
      return in_double;
  }
  explicit operator bool() const { return in_double.op != nullptr; }
};
template <class F>
OpPair both(F f) {
  const AnyOp* op = new OpOf<F>(f);
  const std::shared_ptr<const AnyOp> kept(op);
  return {{kept}, {kept}};
}

struct OpCase {
  std::string name;     // as in ops.hpp; operators by their word
  std::string variant;  // what distinguishes this row
  std::vector<Shape> inputs;
  OpPair op;
  OpPair reference = {};  // the composed form of a fused op
  Domain domain = Domain::normal;
  std::vector<std::vector<Shape>> refused = {};  // inputs that must throw a ShapeError naming the op
};

namespace op_cases {

/// Sizes 0, 1, prime and odd, ranks 0 to 4.
inline const std::vector<Shape> any_shape = {{}, {1}, {7}, {0}, {2, 3}, {3, 0, 2}, {2, 3, 5}, {2, 1, 3, 17}};

// The families, each in a file of its name, add their rows.
void elementwise(std::vector<OpCase>& table);
void reductions(std::vector<OpCase>& table);
void products(std::vector<OpCase>& table);
void shapes(std::vector<OpCase>& table);
void rows(std::vector<OpCase>& table);
void selects(std::vector<OpCase>& table);
void tokens(std::vector<OpCase>& table);
void losses(std::vector<OpCase>& table);
void attention(std::vector<OpCase>& table);

}  // namespace op_cases
}  // namespace xtape
