// A user's new op and layer, with its check.

#include <iostream>
#include <xtape/xtape.hpp>
#include <xtensor/xmath.hpp>

using namespace xtape;

/// x + sin(x)^2, periodic activation (Ziyin et al. 2020).
template <class T>
Var<T> snake(Var<T> x) {
  Var<T> y = x.tape().output("snake", x.shape(), x);
  xt::noalias(y.value()) = x.value() + xt::square(xt::sin(x.value()));
  x.tape().on_backward(y, [x, y] { xt::noalias(x.grad()) += y.grad() * (T(1) + xt::sin(T(2) * x.value())); });
  return y;
}

template <class T>
struct SnakeMlp {
  Linear<T> up, down;
  SnakeMlp(std::size_t width, std::size_t hidden, Rng& rng) : up(width, hidden, rng), down(hidden, width, rng) {}
  Var<T> operator()(Var<T> x) { return down(snake(up(x))); }
  void visit(auto&& f) {
    f("up", up);
    f("down", down);
  }
};

/// The same op with a derivative that is wrong by the factor 2 in its second term.
template <class T>
Var<T> wrong_snake(Var<T> x) {
  Var<T> y = x.tape().output("wrong_snake", x.shape(), x);
  xt::noalias(y.value()) = x.value() + xt::square(xt::sin(x.value()));
  x.tape().on_backward(y, [x, y] { xt::noalias(x.grad()) += y.grad() * (T(1) + T(2) * xt::sin(T(2) * x.value())); });
  return y;
}

int main() {
  Rng rng(1);
  const GradcheckReport right = gradcheck(SnakeMlp<double>(6, 8, rng), {{2, 3, 6}});
  const GradcheckReport wrong = gradcheck([](Var<double> x) { return wrong_snake(x); }, {{2, 3}});
  std::cout << right;
  std::cout << "\nand with a wrong derivative:\n" << wrong << '\n';
  return right && !wrong ? 0 : 1;
}
