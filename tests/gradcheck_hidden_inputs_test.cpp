// No callback is wrong, and yet gradients are lost: operands that an op does not list, values made outside of all ops.

#include <xtape/framework/train/gradcheck/blame.hpp>

#include "support.hpp"

namespace xtape::gradcheck_hidden_inputs_test {
namespace {

using Tape64 = Tape<double>;
using Var64 = Var<double>;
using Inputs = std::span<const Var64>;

std::vector<Blame> blame_for(const detail::CheckedFunction& f, const std::vector<Shape>& shapes,
                             const ParameterList<double>& parameters = {}) {
  std::vector<std::vector<double>> values;
  for (const Shape& shape : shapes) {
    const auto x = random_array<double>(shape, values.size() + 1);
    values.emplace_back(x.begin(), x.end());
  }
  return detail::find_blame(f, shapes, values, parameters, 1);
}

std::string text(const std::vector<Blame>& blame) {
  std::string all;
  for (const Blame& b : blame) all += to_string(b) + "\n";
  return all;
}

/// x w elementwise; w is read where it stands and is not among the inputs.
Var64 forgetful(Var64 x, const double* w) {
  const Var64 y = x.tape().output("forgetful", x.shape(), x);
  for (std::size_t k = 0; k < y.size(); ++k) y.data()[k] = x.data()[k] * w[k];
  x.tape().on_backward(y, [=] {
    for (std::size_t k = 0; k < y.size(); ++k) x.grad().data()[k] += y.grad().data()[k] * w[k];
  });
  return y;
}

TEST(HiddenInputs, AnOperandThatIsNotListedIsNamed) {
  const auto input = [](Tape64&, Inputs x) { return exp(forgetful(x[0], x[1].data())); };
  EXPECT_EQ(text(blame_for(input, {{2, 3}, {2, 3}})), "forgetful, argument that is not among its inputs (input 1)\n");
  const auto made = [](Tape64&, Inputs x) { return exp(forgetful(x[0], tanh(x[1]).data())); };
  EXPECT_EQ(text(blame_for(made, {{2, 3}, {2, 3}})),
            "forgetful, argument that is not among its inputs (made by tanh)\n");
}

TEST(HiddenInputs, AParameterThatIsNotOnTheTapeIsNamed) {
  ParameterList<double> list;
  list.emplace_back("gain", Parameter<double>({2, 3}));
  list[0].parameter.write() = random_array<double>({2, 3}, 3);
  const xt::xarray<double> before = list[0].parameter.value();
  const auto f = [&](Tape64&, Inputs x) { return forgetful(exp(x[0]), list[0].parameter.data()); };
  const auto blame = blame_for(f, {{2, 3}}, list);
  EXPECT_EQ(text(blame), "forgetful, argument that is not among its inputs (gain)\n");
  EXPECT_EQ(blame.at(0).reason, Reason::no_gradient);
  EXPECT_EQ(blame[0].worst.analytic, 0);
  EXPECT_GT(std::abs(blame[0].worst.numeric), 10 * blame[0].worst.bar);
  EXPECT_EQ(list[0].parameter.value(), before);
}

TEST(HiddenInputs, AValueMadeOutsideOfAllOpsIsNamed) {
  struct Layer {
    LayerName name;
  } layer;
  layer.name.set("blocks.0.detour");
  const auto f = [&](Tape64& tape, Inputs x) {
    const auto here = layer.name.enter();
    const Var64 y = tanh(x[0]);
    return exp(tape.input(xt::xarray<double>(2.0 * y.value()))) * x[0];
  };
  const auto blame = blame_for(f, {{2, 3}});
  EXPECT_EQ(text(blame), "blocks.0.detour: tanh, and then a value made outside the tape's ops\n");
  EXPECT_EQ(blame.at(0).worst.place.rank(), 2u);
}

TEST(HiddenInputs, WhatIsCutOffOnPurposeIsNot) {
  const auto f = [](Tape64& tape, Inputs x) {
    const Var64 constant = tape.input(random_array<double>(x[0].shape(), 5));
    return exp(x[0]) * detach(tanh(x[0])) + constant;
  };
  EXPECT_EQ(text(blame_for(f, {{2, 3}})), "");
}

// Attention copies keys that are the queries' memory with heads elsewhere, so that gradients do not overlay.
TEST(HiddenInputs, OfAttentionWithQueriesAndKeysInOneMemoryAreNone) {
  const auto f = [](Tape64&, Inputs x) {
    const Var64 k = reshape(x[0], {1, 8, 4});
    return attention(x[0], k, k, 2, {.kv_heads = 1});
  };
  EXPECT_EQ(text(blame_for(f, {{1, 4, 8}})), "");
}

}  // namespace
}  // namespace xtape::gradcheck_hidden_inputs_test
