// The same checks over every row of the table of ops.

#include <xtensor/xmanipulation.hpp>
#include <xtensor/xstrided_view.hpp>
#include <xtensor/xview.hpp>

#include "op_cases/table.hpp"
#include "support.hpp"

namespace xtape::op_table_test {
namespace {

template <class T>
using Arrays = std::vector<xt::xarray<T>>;

Arrays<double> inputs_of(const OpCase& c, std::uint64_t seed = 1) { return op_cases::inputs_of(c, seed); }

template <class T>
Arrays<T> cast(const Arrays<double>& arrays) {
  Arrays<T> result;
  for (const auto& x : arrays) result.push_back(xt::cast<T>(x));
  return result;
}

/// Output and gradients of one recording, for a fixed random gradient from above.
template <class T>
struct Recording {
  xt::xarray<T> output;
  std::vector<xt::xarray<T>> gradients;  // empty arrays where none was asked for
};
template <class T>
Recording<T> record(const OpFunction<T>& op, const Arrays<T>& inputs, unsigned wanted = ~0u) {
  Tape<T> tape(3);
  std::vector<Var<T>> x;
  for (std::size_t i = 0; i < inputs.size(); ++i) x.push_back(tape.input(inputs[i], (wanted >> i & 1u) != 0));
  const Var<T> y = op(x);
  Recording<T> recording{array(y), {}};
  if (y.requires_grad()) tape.backward(y, random_array<T>(y.shape(), 7));
  for (const Var<T>& v : x) recording.gradients.push_back(v.requires_grad() ? gradient(v) : xt::xarray<T>());
  return recording;
}

/// Runs a check on every row; what fails says on which.
template <class Check>
void on_every_row(Check check) {
  for (const OpCase& c : op_cases::table()) {
    SCOPED_TRACE(to_string(c));
    check(c);
  }
}

#ifdef __SANITIZE_ADDRESS__
constexpr std::uint64_t seeds = 1;  // memory is used alike with every seed
#else
constexpr std::uint64_t seeds = 5;
#endif

TEST(OpTable, GradientsAgreeWithFiniteDifferencesAndAddToWhatStands) {
  on_every_row([](const OpCase& c) {
    const auto op = [&](Tape<double>&, auto... x) { return c.op.in_double(std::vector<Var<double>>{x...}); };
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      const GradcheckReport report = gradcheck_at(op, inputs_of(c, seed), {.seed = seed});
      EXPECT_TRUE(report) << "seed " << seed << '\n' << report;
    }
  });
}

TEST(OpTable, EverySubsetOfInputsGetsTheSameGradients) {
  on_every_row([](const OpCase& c) {
    const Arrays<double> inputs = inputs_of(c);
    const Recording<double> all = record(c.op.in_double, inputs);
    for (unsigned wanted = 0; wanted + 1 < 1u << inputs.size(); ++wanted) {
      const Recording<double> some = record(c.op.in_double, inputs, wanted);
      EXPECT_EQ(some.output, all.output);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if ((wanted >> i & 1u) == 0) continue;
        EXPECT_EQ(some.gradients[i], all.gradients[i]) << "input " << i << " of subset " << wanted;
      }
    }
  });
}

TEST(OpTable, AnInputUsedTwiceGetsBothContributions) {
  on_every_row([](const OpCase& c) {
    const Arrays<double> inputs = inputs_of(c);
    const Recording<double> once = record(c.op.in_double, inputs);
    Tape<double> tape(3);
    std::vector<Var<double>> x;
    for (const auto& input : inputs) x.push_back(tape.input(input, true));
    const Var<double> first = c.op.in_double(x);
    tape.set_step(0);
    const Var<double> second = c.op.in_double(x);
    const Var<double> y = first + (c.name == "dropout" ? first : second);  // a second dropout drops others
    tape.backward(y, random_array<double>(y.shape(), 7));
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_TRUE(near(gradient(x[i]), xt::xarray<double>(2.0 * once.gradients[i]), tolerance::two_paths_double))
          << "input " << i;
  });
}

TEST(OpTable, TwoRecordingsGiveTheSameBits) {
  on_every_row([](const OpCase& c) {
    const Arrays<float> inputs = cast<float>(inputs_of(c));
    const Recording<float> first = record(c.op.in_float, inputs), second = record(c.op.in_float, inputs);
    EXPECT_EQ(first.output, second.output);
    EXPECT_EQ(first.gradients, second.gradients);
  });
}

TEST(OpTable, FloatAgreesWithDouble) {
  on_every_row([](const OpCase& c) {
    const Arrays<double> inputs = inputs_of(c);
    const Arrays<float> narrow = cast<float>(inputs);
    Arrays<double> rounded;
    for (const auto& x : narrow) rounded.push_back(xt::cast<double>(x));
    const Recording<float> in_float = record(c.op.in_float, narrow);
    Tape<double> tape(3);
    std::vector<Var<double>> x;
    for (const auto& input : rounded) x.push_back(tape.input(input, true));
    const Var<double> y = c.op.in_double(x);
    if (y.requires_grad()) tape.backward(y, xt::cast<double>(random_array<float>(y.shape(), 7)));
    EXPECT_TRUE(near(in_float.output, array(y), tolerance::float_against_double));
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_TRUE(near(in_float.gradients[i], gradient(x[i]), tolerance::float_against_double)) << "input " << i;
  });
}

template <class T>
void compare_with_reference(const OpCase& c) {
  const Arrays<T> inputs = cast<T>(inputs_of(c, 2));
  const Recording<T> fused = record(c.op.of<T>(), inputs), composed = record(c.reference.of<T>(), inputs);
  EXPECT_TRUE(near(fused.output, composed.output, tolerance::two_paths<T>));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    EXPECT_TRUE(near(fused.gradients[i], composed.gradients[i], tolerance::two_paths<T>)) << "input " << i;
}

TEST(OpTable, FusedFormAgreesWithTheComposedReference) {
  on_every_row([](const OpCase& c) {
    if (!c.reference) return;
    compare_with_reference<double>(c);
    compare_with_reference<float>(c);
  });
}

TEST(OpTable, StridedInputsEqualTheirContiguousCopies) {
  on_every_row([](const OpCase& c) {
    const Arrays<double> inputs = inputs_of(c);
    const Recording<double> contiguous = record(c.op.in_double, inputs);
    enum class View { transposed, strided, reversed, expression };
    for (const View view : {View::transposed, View::strided, View::reversed, View::expression}) {
      Tape<double> tape(3);
      std::vector<Var<double>> x;
      for (const auto& input : inputs) {
        if (view == View::expression || input.dimension() == 0 || input.size() == 0) {
          x.push_back(tape.input(input + 0.0));
        } else if (view == View::transposed) {
          const xt::xarray<double> other = xt::transpose(input);
          x.push_back(tape.input(xt::transpose(other)));
        } else if (view == View::strided) {
          std::vector<std::size_t> wide(input.shape().begin(), input.shape().end());
          wide.back() *= 2;  // every second number of the last axis
          xt::xarray<double> other = zeros_of<double>(Shape(wide));
          for (std::size_t k = 0; k < input.size(); ++k) other.flat(2 * k) = input.flat(k);
          xt::xstrided_slice_vector slices(input.dimension() - 1, xt::all());
          slices.push_back(xt::range(0, static_cast<std::ptrdiff_t>(wide.back()), 2));
          x.push_back(tape.input(xt::strided_view(other, slices)));
        } else {
          const xt::xarray<double> other = xt::flip(input, 0);
          x.push_back(tape.input(xt::flip(other, 0)));
        }
      }
      EXPECT_EQ(array(c.op.in_double(x)), contiguous.output) << "view " << static_cast<int>(view);
    }
  });
}

TEST(OpTable, WrongShapesAreRefusedWithTheNameOfTheOp) {
  on_every_row([](const OpCase& c) {
    for (const auto& shapes : c.refused) {
      Tape<double> tape;
      std::vector<Var<double>> x;
      for (const Shape& shape : shapes) x.push_back(tape.input(random_array<double>(shape, 1), true));
      expect_message<ShapeError>([&] { c.op.in_double(x); }, {("[" + c.name + "]").c_str(), "got"});
    }
  });
}

TEST(OpTable, NothingIsRecordedUnderNoGrad) {
  on_every_row([](const OpCase& c) {
    const Arrays<double> inputs = inputs_of(c);
    Tape<double> tape(3);
    std::vector<Var<double>> x;
    for (const auto& input : inputs) x.push_back(tape.input(input, true));
    const auto guard = tape.no_grad();
    const Var<double> y = c.op.in_double(x);
    EXPECT_EQ(array(y), record(c.op.in_double, inputs).output);
    EXPECT_FALSE(y.requires_grad());
    EXPECT_THROW(tape.backward(y, xt::xarray<double>(y.value())), TapeError);
  });
}

// An op that is wrong in a given way, to show that the checks above would see it.
TEST(OpTableItself, AReferenceThatDiffersIsSeen) {
  const OpCase& softmax_row = *std::find_if(op_cases::table().begin(), op_cases::table().end(), [](const OpCase& c) {
    return c.name == "softmax" && c.inputs[0] == Shape{2, 3};
  });
  const Arrays<double> inputs = inputs_of(softmax_row);
  const auto wrong = both([](auto x) { return reference::softmax(x[0] * (1 + 1e-9)); });
  EXPECT_FALSE(near(record(wrong.in_double, inputs).output, record(softmax_row.op.in_double, inputs).output,
                    tolerance::two_paths_double));
}

TEST(OpTableItself, HasRowsForEveryFamily) { EXPECT_GT(op_cases::table().size(), 150u); }

}  // namespace
}  // namespace xtape::op_table_test
