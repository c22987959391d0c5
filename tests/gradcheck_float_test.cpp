// Float against double, and whole models along a few directions.

#include "behaviour.hpp"
#include "planted_faults.hpp"

namespace xtape::gradcheck_float_test {
namespace {

/// x itself with a gradient that is off by a factor, in a layer of both element types.
template <class T>
Var<T> with_factor(Var<T> x, double factor) {
  const Var<T> y = x.tape().output("with_factor", x.shape(), x);
  std::copy(x.data(), x.data() + x.size(), y.data());
  x.tape().on_backward(y, [x, y, factor] {
    T* dx = x.grad().data();
    for (std::size_t k = 0; k < x.size(); ++k) dx[k] += static_cast<T>(factor) * y.grad().data()[k];
  });
  return y;
}

template <class T>
TransformerBlock<T> block(std::uint64_t seed, Norm norm = Norm::pre, Activation activation = Activation::gelu) {
  Rng rng(seed);
  return TransformerBlock<T>(16, 4, rng, {.norm = norm, .hidden = 32, .activation = activation});
}

TEST(GradcheckFloat, TransformerLayersRaiseNoFalseAlarm) {
  for (std::uint64_t seed = 0; seed < 5; ++seed)
    for (const Norm norm : {Norm::pre, Norm::post})
      for (const Activation activation : {Activation::gelu, Activation::relu}) {
        const auto report = gradcheck_float(block<float>(seed, norm, activation),
                                            block<double>(seed + 1, norm, activation), {{2, 7, 16}}, {.seed = seed});
        EXPECT_TRUE(report) << report;
        EXPECT_GE(report.tensors.size(), 13u);
      }
}

TEST(GradcheckFloat, AGradientOffByAThousandthIsCaught) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    auto in_float = block<float>(seed);
    auto in_double = block<double>(seed);
    const auto f = [&](double factor) {
      return gradcheck_float([&](Var<float> x) { return in_float(with_factor(x, factor)); },
                             [&](Var<double> x) { return in_double(x); }, {{2, 7, 16}},
                             {.seed = seed,
                              .parameters = parameters<float>(in_float),
                              .parameters_in_double = parameters<double>(in_double)});
    };
    const GradcheckReport right = f(1), wrong = f(1.001);
    EXPECT_TRUE(right) << right;
    EXPECT_FALSE(wrong);
    EXPECT_EQ(wrong.tensors[0].name, "input 0");
    EXPECT_EQ(reason(wrong), Reason::mismatch);
    EXPECT_GT(tensor(wrong).worst.ratio(), 5) << wrong;
  }
}

TEST(GradcheckFloat, GenericLambdasStandForBoth) {
  const auto f = [](auto x, auto y) { return softmax(matmul(x, y)); };
  const GradcheckReport report = gradcheck_float(f, f, {{5, 6}, {6, 7}});
  EXPECT_TRUE(report) << report;
  const auto wrong = [](auto x, auto y) { return with_factor(softmax(matmul(x, y)), 1.001); };
  EXPECT_FALSE(gradcheck_float(wrong, f, {{5, 6}, {6, 7}}));
}

TEST(GradcheckFloat, ParametersAreMatchedByNameAndPutBack) {
  Rng rng(1), other(2);
  Linear<float> in_float(3, 2, rng);
  Linear<double> in_double(3, 2, other);
  const auto before = values_of(in_double.weight);
  EXPECT_TRUE(gradcheck_float(in_float, in_double, {{4, 3}}));
  EXPECT_EQ(values_of(in_double.weight), before);
  EXPECT_FALSE(in_float.weight.has_grad());
  expect_message<Error>(
      [&] {
        gradcheck_float(in_float, Linear<double>(3, 2, other, {.bias = false}), {{4, 3}});
      },
      {"[gradcheck_float]", "2", "1"});
  expect_message<Error>(
      [&] {
        gradcheck_float(in_float, Linear<double>(4, 2, other), {{4, 3}});
      },
      {"[gradcheck_float]", "weight (2, 3)", "weight (2, 4)"});
}

// ---- directions

TEST(GradcheckDirections, AWholeModelForAFewForwardPasses) {
  std::size_t calls = 0;
  auto layer = block<double>(3);
  const auto f = [&](double factor) {
    return [&, factor](Var<double> x) {
      ++calls;
      return layer(with_factor(layer.self_attn(x), factor) + x);
    };
  };
  const GradcheckOptions options{.parameters = parameters<double>(layer)};
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    calls = 0;
    GradcheckOptions seeded = options;
    seeded.seed = seed;
    const GradcheckReport report = gradcheck_directions(f(1), {{2, 5, 16}}, seeded);
    EXPECT_TRUE(report) << report;
    ASSERT_EQ(report.tensors.size(), 1u);
    EXPECT_EQ(report.tensors[0].directions, 2u);
    EXPECT_LE(calls, 60u);
  }
  const GradcheckReport wrong = gradcheck_directions(f(1.001), {{2, 5, 16}}, options);
  EXPECT_FALSE(wrong);
  EXPECT_EQ(reason(wrong), Reason::mismatch) << wrong;  // the input is upstream of the fault
  ASSERT_EQ(wrong.blame.size(), 1u) << wrong;
  EXPECT_EQ(wrong.blame[0].op, "with_factor");
  for (const TensorReport& t : wrong.tensors) EXPECT_NE(t.name, "linear1.weight") << wrong;  // downstream
}

}  // namespace
}  // namespace xtape::gradcheck_float_test
