#pragma once
// Small ops for the tests of the gradient checker: a right forward, and a backward that the test gives, right or with a
// planted fault.

#include "support.hpp"

namespace xtape {

/// Elementwise f(x) with the given backward, a function of (x, y) that adds to x.grad() from y.grad().
template <class Forward, class Backward>
Var<double> elementwise(Var<double> x, Forward forward, Backward backward) {
  const Var<double> y = x.tape().output("elementwise", x.shape(), x);
  std::transform(x.data(), x.data() + x.size(), y.data(), forward);
  x.tape().on_backward(y, [x, y, backward] { backward(x, y); });
  return y;
}

/// A backward that adds f(dy, x) to each element of x's gradient.
template <class F>
auto adding(F f) {
  return [f](Var<double> x, Var<double> y) {
    double* dx = x.grad().data();
    const double* dy = y.grad().data();
    for (std::size_t i = 0; i < x.size(); ++i) dx[i] += f(dy[i], x.data()[i]);
  };
}

/// x^3 with the given backward.
template <class Backward>
auto cube(Backward backward) {
  return [backward](Var<double> x) {
    return elementwise(
        x, [](double v) { return v * v * v; }, backward);
  };
}

/// x w with square matrices, and the right gradient of x; that of w is given.
template <class Backward>
auto product(Backward weight_backward) {
  return [weight_backward](Var<double> x, Var<double> w) {
    const auto multiply = [](const auto& a, const auto& b) -> xt::xarray<double> {
      xt::xarray<double> result = xt::zeros<double>({a.shape(0), b.shape(1)});
      for (std::size_t i = 0; i < a.shape(0); ++i)
        for (std::size_t k = 0; k < a.shape(1); ++k)
          for (std::size_t j = 0; j < b.shape(1); ++j) result(i, j) += a(i, k) * b(k, j);
      return result;
    };
    const Var<double> y = x.tape().output("product", x.shape(), x, w);
    xt::noalias(y.value()) = multiply(x.value(), w.value());
    x.tape().on_backward(y, [=] {
      xt::noalias(x.grad()) += multiply(y.grad(), xt::transpose(w.value()));
      weight_backward(w, multiply(xt::transpose(x.value()), y.grad()));
    });
    return y;
  };
}

/// What the report says of one tensor, by default the first input.
inline const TensorReport& tensor(const GradcheckReport& report, const std::string& name = "input 0") {
  for (const TensorReport& t : report.tensors)
    if (t.name == name) return t;
  throw Error("the report has no tensor " + name);
}
inline Reason reason(const GradcheckReport& report, const std::string& name = "input 0") {
  return tensor(report, name).reason;
}

}  // namespace xtape
