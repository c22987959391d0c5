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

inline xt::xarray<double> transposed(const xt::xarray<double>& a) {
  xt::xarray<double> result = zeros_of<double>({a.shape(1), a.shape(0)});
  for (std::size_t i = 0; i < a.shape(0); ++i)
    for (std::size_t j = 0; j < a.shape(1); ++j) result(j, i) = a(i, j);
  return result;
}

inline xt::xarray<double> product_of(const xt::xarray<double>& a, const xt::xarray<double>& b) {
  xt::xarray<double> result = zeros_of<double>({a.shape(0), b.shape(1)});
  for (std::size_t i = 0; i < a.shape(0); ++i)
    for (std::size_t k = 0; k < a.shape(1); ++k)
      for (std::size_t j = 0; j < b.shape(1); ++j) result(i, j) += a(i, k) * b(k, j);
  return result;
}

inline void add_to_gradient(Var<double> x, const xt::xarray<double>& dx) {
  std::transform(dx.data(), dx.data() + dx.size(), x.grad().data(), x.grad().data(), std::plus<double>());
}

/// x w with square matrices, and the right gradient of x; that of w is given.
template <class Backward>
auto product(Backward weight_backward) {
  return [weight_backward](Var<double> x, Var<double> w) {
    const Var<double> y = x.tape().output("product", x.shape(), x, w);
    const xt::xarray<double> forward = product_of(array(x), array(w));
    std::copy_n(forward.data(), forward.size(), y.data());
    x.tape().on_backward(y, [=] {
      add_to_gradient(x, product_of(gradient(y), transposed(array(w))));
      weight_backward(w, product_of(transposed(array(x)), gradient(y)));
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
