// Who is to blame: a fault is planted into one op of a model, and the search names that op, its layer, the argument and
// the element.

#include <set>
#include <xtape/framework/train/gradcheck/argument_names.hpp>
#include <xtape/framework/train/gradcheck/blame.hpp>

#include "op_cases/table.hpp"
#include "snake.hpp"

namespace xtape::gradcheck_blame_test {
namespace {

using Tape64 = Tape<double>;
using Var64 = Var<double>;
using Numbers = std::vector<double>;

// ---- planted faults

/// What a callback adds to a gradient, done wrong: `increment` is right, `sum` is what stands in the gradient with it.
using Fault = std::function<void(const Numbers& increment, double* sum)>;

/// Does the gradient of one argument wrong in the ops of that name and layer.
struct Planted : TapeObserver<double> {
  std::string layer, op;
  std::size_t argument;
  Fault fault;
  bool upstream_ignored = false;
  std::size_t runs = 0;
  Planted(std::string layer_, std::string op_, std::size_t argument_, Fault fault_ = {})
      : layer(std::move(layer_)), op(std::move(op_)), argument(argument_), fault(std::move(fault_)) {}

  void backward(Var64 y, const std::function<void()>& run) override {
    if (y.op() != op || y.layer() != layer) return run();
    ++runs;
    Tape64& tape = y.tape();
    const Var64 x = tape.inputs(y)[argument];
    const auto slot = tape.slot(x);
    const Numbers before = slot.accumulate ? Numbers(slot.data, slot.data + x.size()) : Numbers(x.size(), 0.0);
    if (!slot.accumulate) tape.forget_grad(x);
    const Numbers upstream(tape.slot(y).data, tape.slot(y).data + y.size());
    if (upstream_ignored) std::fill_n(tape.slot(y).data, y.size(), 1.0);
    run();
    std::copy(upstream.begin(), upstream.end(), tape.slot(y).data);
    double* sum = tape.slot(x).data;
    Numbers increment(x.size());
    for (std::size_t k = 0; k < increment.size(); ++k) increment[k] = sum[k] - before[k];
    if (fault) fault(increment, sum);
  }
};

Fault factor(double c) {
  return [c](const Numbers& increment, double* sum) {
    for (std::size_t k = 0; k < increment.size(); ++k) sum[k] += (c - 1) * increment[k];
  };
}
Fault off_by(std::size_t k, double error) {
  return [=](const Numbers&, double* sum) { sum[k] += error; };
}
void overwriting(const Numbers& increment, double* sum) { std::copy(increment.begin(), increment.end(), sum); }
void transposing(const Numbers& increment, double* sum) {
  const auto n = static_cast<std::size_t>(std::sqrt(static_cast<double>(increment.size())));
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) sum[i * n + j] += increment[j * n + i] - increment[i * n + j];
}
Fault noise() {
  const auto rng = std::make_shared<Rng>(1);
  return [rng](const Numbers& increment, double* sum) {
    for (std::size_t k = 0; k < increment.size(); ++k) sum[k] += 1e-3 * rng->normal();
  };
}

// ---- models

/// Biases that are not 0, gains that are not 1.
template <class Model>
Model shaken(Model model) {
  Rng rng(8);
  for (auto& [name, parameter] : parameters<double>(model))
    for (auto& x : parameter.write()) x += 0.3 * rng.normal();
  return model;
}

TransformerLm<double> language_model(TransformerBlockOptions block = {.hidden = 8, .rope = RopeOptions{}}) {
  Rng rng(3);
  return shaken(
      TransformerLm<double>({.vocabulary = 5, .length = 4, .width = 8, .heads = 2, .layers = 2, .block = block}, rng));
}

/// A function of no inputs: logits of fixed tokens, with observers on its tape.
template <class Model>
detail::CheckedFunction logits(const Model& model, std::vector<Planted*> planted = {}) {
  return [&model, planted](Tape64& tape, std::span<const Var64>) {
    for (Planted* each : planted) tape.observe(*each);
    return model(tape, xt::xarray<int>{{0, 3, 1, 2}, {4, 4, 0, 1}});
  };
}

std::vector<Blame> blame_in(TransformerLm<double>& model, std::vector<Planted*> planted, std::uint64_t seed = 0) {
  return detail::find_blame(logits(model, std::move(planted)), {}, {}, parameters<double>(model), seed);
}

/// Blame for a function of inputs.
template <class F>
std::vector<Blame> blame_for(F f, const std::vector<Shape>& shapes, std::uint64_t seed = 0, double scale = 1) {
  std::vector<Numbers> values;
  for (const Shape& shape : shapes) {
    const auto x = random_array<double>(shape, 10 * seed + values.size(), scale);
    values.emplace_back(x.begin(), x.end());
  }
  return detail::find_blame(f, shapes, values, {}, seed);
}

std::string text(const std::vector<Blame>& blame) {
  std::string all;
  for (const Blame& b : blame)
    all += fmt::format("{}: {}, argument {} ({}) at {}: {} against {} +- {}\n", b.layer, b.op, b.argument,
                       to_string(b.reason), to_string(b.worst.place), b.worst.analytic, b.worst.numeric, b.worst.bar);
  return all;
}

/// Passes if exactly one argument is blamed.
testing::AssertionResult names_only(const std::vector<Blame>& blame, const std::string& layer, const std::string& op,
                                    const std::string& argument) {
  if (blame.size() == 1 && blame[0].layer == layer && blame[0].op == op && blame[0].argument == argument)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected " << layer << ": " << op << ", argument " << argument << ", got\n"
                                     << text(blame);
}

// ---- one wrong op

struct Place {
  const char *layer, *op;
  std::size_t argument;
  const char* name;
};
const Place places[] = {
    {"token_embedding", "embedding", 0, "weight (token_embedding.weight)"},  // the first op of all
    {"blocks.0.norm1", "layer_norm", 1, "gain (blocks.0.norm1.weight)"},
    {"blocks.0.self_attn.out_proj", "linear", 1, "weight (blocks.0.self_attn.out_proj.weight)"},
    {"blocks.1.self_attn", "attention", 1, "k"},
    {"blocks.1.linear1", "linear_gelu", 0, "x"},
    {"head", "linear", 0, "x"}  // the last
};

TEST(Blame, NamesTheOpItsLayerAndTheArgumentForEveryFault) {
  auto model = language_model();
  struct Named {
    const char* name;
    Fault fault;
    Reason reason;
  };
  const Named faults[] = {
      {"factor", factor(1.01), Reason::mismatch},         {"sign", factor(-1), Reason::mismatch},
      {"one element", off_by(5, 1e-3), Reason::mismatch}, {"overwriting", overwriting, Reason::mismatch},
      {"zeros", factor(0), Reason::no_gradient},          {"NaN", off_by(3, std::nan("")), Reason::non_finite},
      {"noise", noise(), Reason::non_deterministic}};
  for (const Place& place : places)
    for (const Named& fault : faults) {
      SCOPED_TRACE(fmt::format("{} in {} {}", fault.name, place.layer, place.op));
      Planted planted(place.layer, place.op, place.argument, fault.fault);
      const auto blame = blame_in(model, {&planted});
      ASSERT_GT(planted.runs, 0u);
      EXPECT_TRUE(names_only(blame, place.layer, place.op, place.name));
      ASSERT_FALSE(blame.empty());
      EXPECT_EQ(blame[0].reason, fault.reason) << text(blame);
    }
}

TEST(Blame, NamesTheWrongElement) {
  auto model = language_model();
  for (const Place& place : places)
    for (const std::size_t k : {0, 5, 7}) {
      Planted planted(place.layer, place.op, place.argument, off_by(k, 1e-3));
      const auto blame = blame_in(model, {&planted});
      ASSERT_TRUE(names_only(blame, place.layer, place.op, place.name));
      const Blame& b = blame[0];
      std::size_t flat = b.worst.place[0];  // with all leading extents
      if (b.worst.place.rank() == 2) flat = b.worst.place[0] * 8 + b.worst.place[1];
      if (b.worst.place.rank() == 3) flat = (b.worst.place[0] * 4 + b.worst.place[1]) * 8 + b.worst.place[2];
      EXPECT_EQ(flat, k) << text(blame);
      EXPECT_NEAR(b.worst.analytic - b.worst.numeric, 1e-3, 2 * b.worst.bar);
      EXPECT_LT(b.worst.bar, 1e-5);
      EXPECT_GT(b.worst.ratio(), 10);
    }
}

TEST(Blame, SeesATransposedGradientAndAnUpstreamGradientThatIsIgnored) {
  auto model = language_model();
  Planted transposed("blocks.1.self_attn.out_proj", "linear", 1, transposing);
  EXPECT_TRUE(names_only(blame_in(model, {&transposed}), "blocks.1.self_attn.out_proj", "linear",
                         "weight (blocks.1.self_attn.out_proj.weight)"));
  Planted ignoring("token_embedding", "embedding", 0);
  ignoring.upstream_ignored = true;
  EXPECT_TRUE(
      names_only(blame_in(model, {&ignoring}), "token_embedding", "embedding", "weight (token_embedding.weight)"));
}

TEST(Blame, NamesBothOfTwoFaultyOpsInTheOrderOfRecording) {
  auto model = language_model();
  Planted late("blocks.1.self_attn", "attention", 2, factor(1.01)),
      early("blocks.0.norm2", "layer_norm", 0, factor(-1));
  const auto blame = blame_in(model, {&late, &early});
  ASSERT_EQ(blame.size(), 2u) << text(blame);
  EXPECT_EQ(blame[0].layer + blame[0].argument, "blocks.0.norm2x");
  EXPECT_EQ(blame[1].layer + blame[1].argument, "blocks.1.self_attnv");
}

TEST(Blame, NamesEveryWrongArgumentOfAnOp) {
  auto model = language_model();
  Planted q("blocks.1.self_attn", "attention", 0, factor(0)), v("blocks.1.self_attn", "attention", 2, off_by(2, 0.1));
  const auto blame = blame_in(model, {&q, &v});
  ASSERT_EQ(blame.size(), 2u) << text(blame);
  EXPECT_EQ(blame[0].argument, "q");
  EXPECT_EQ(blame[0].reason, Reason::no_gradient);
  EXPECT_EQ(blame[1].argument, "v");
}

TEST(Blame, NamesAUsersOwnOp) {
  Planted planted("", "snake", 0, off_by(4, 1e-3));
  const auto f = [&](Tape64& tape, std::span<const Var64> x) {
    tape.observe(planted);
    return exp(snake(tanh(x[0])));
  };
  const auto blame = blame_for(f, {{2, 3}});
  EXPECT_TRUE(names_only(blame, "", "snake", "1 of 1"));
  EXPECT_EQ(blame.at(0).worst.place, (Shape{1, 1}));
}

TEST(Blame, NamesAnInputOfTheFunctionAndAMemoryThatIsGivenTwice) {
  Planted planted("", "multiply", 0, factor(2));
  const auto f = [&](Tape64& tape, std::span<const Var64> x) {
    tape.observe(planted);
    const Var64 z = exp(x[0]);
    return x[1] * (z * reshape(z, z.shape()));
  };
  const auto blame = blame_for(f, {{2, 3}, {2, 3}});
  ASSERT_EQ(blame.size(), 2u) << text(blame);
  EXPECT_EQ(blame[0].argument, "a and b");
  EXPECT_EQ(blame[1].argument, "a (input 1)");
}

TEST(Blame, TriesAllOutputsOfAnOp) {
  Planted planted("", "attention_with_weights", 1, off_by(7, 1e-3));
  const auto f = [&](Tape64& tape, std::span<const Var64> x) {
    tape.observe(planted);
    return sum(attention_with_weights(x[0], x[1], x[2], 2).output);
  };
  const std::vector<Shape> shapes = {{2, 3, 4}, {2, 5, 4}, {2, 5, 6}};
  EXPECT_TRUE(names_only(blame_for(f, shapes), "", "attention_with_weights", "k (input 1)"));
  const auto some_queries_see_nothing = [&](Tape64& tape, std::span<const Var64> x) {  // their log-sum-exp is -inf
    tape.observe(planted);
    return attention_with_weights(x[0], x[1], x[2], 2, {.allow_keys = tape.lengths(xt::xarray<int>{5, 0}, 5)}).output;
  };
  EXPECT_TRUE(names_only(blame_for(some_queries_see_nothing, shapes), "", "attention_with_weights", "k (input 1)"));
}

// ---- none to blame

TEST(Blame, OfARightModelIsEmpty) {
  const TransformerBlockOptions blocks[] = {
      {.hidden = 8, .rope = RopeOptions{}},
      {.norm = Norm::post, .hidden = 8, .activation = Activation::relu, .dropout = 0.3, .attention_dropout = 0.2},
      {.hidden = 8, .kv_heads = 1}};
  for (const auto& block : blocks) {
    auto model = language_model(block);
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const auto blame = blame_in(model, {}, seed);
      EXPECT_TRUE(blame.empty()) << text(blame);
    }
  }
}

TEST(Blame, OfEveryOpOfTheTableIsEmpty) {
  for (const OpCase& c : op_cases::table()) {
    SCOPED_TRACE(to_string(c));
    const auto f = [&](Tape64&, std::span<const Var64> x) { return c.op.in_double(x); };
    std::vector<Numbers> values;
    for (const auto& x : op_cases::inputs_of(c, 1)) values.emplace_back(x.begin(), x.end());
    const auto blame = detail::find_blame(f, c.inputs, values, {}, 1);
    EXPECT_TRUE(blame.empty()) << text(blame);
  }
}

TEST(Blame, HasANameForEveryArgumentOfTheTable) {
  std::set<std::string> seen;
  for (const OpCase& c : op_cases::table()) {
    Tape64 tape;
    std::vector<Var64> x;
    for (const auto& shape : c.inputs) x.push_back(tape.input(random_array<double>(shape, 1), true));
    c.op.in_double(x);
    for (std::size_t place = 0; place < tape.size(); ++place) {
      const std::string op = tape.at(place).op();
      const std::size_t count = tape.inputs(tape.at(place)).size();
      if (op == "reshape" || op == "detach" || !seen.insert(fmt::format("{} {}", op, count)).second) continue;
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_NE(detail::argument_name(op, i, count), fmt::format("{} of {}", i + 1, count)) << op;
    }
  }
  EXPECT_GT(seen.size(), 50u);
  EXPECT_EQ(detail::argument_name("attention", 1, 3), "k");
  EXPECT_EQ(detail::argument_name("layer_norm", 1, 2), "gain or bias");
  EXPECT_EQ(detail::argument_name("layer_norm", 2, 3), "bias");
  EXPECT_EQ(detail::argument_name("linear", 1, 4), "2 of 4") << "the catalogue's has three";
}

TEST(Blame, IsNotPutOnAKink) {
  const auto f = [](Tape64&, std::span<const Var64> x) {
    const Var64 a = x[0], b = x[1];
    return relu(a) * abs(a) + maximum(a, b) + max(a, {0}, true) + clamp(b, -1, 1);
  };
  const Shape shape = {4, 9};
  Numbers a(shape.size()), b(shape.size());
  Rng rng(1);
  for (std::size_t k = 0; k < a.size(); ++k) {
    a[k] = k % 2 == 0 ? 0 : k % 3 == 0 ? 1e-9 * rng.normal() : rng.normal();
    b[k] = k % 2 == 0 ? a[k] : k % 5 == 0 ? 1 : rng.normal();
  }
  const auto blame = detail::find_blame(f, {shape, shape}, {a, b}, {}, 1);
  EXPECT_TRUE(blame.empty()) << text(blame);
  Planted planted("", "relu", 0, off_by(7, 1e-3));  // but a fault beside it is seen
  const auto faulty = [&](Tape64& tape, std::span<const Var64> x) {
    tape.observe(planted);
    return f(tape, x);
  };
  const auto seen = detail::find_blame(faulty, {shape, shape}, {a, b}, {}, 1);
  EXPECT_TRUE(names_only(seen, "", "relu", "x (input 0)"));
}

TEST(Blame, IsNotPutOnAGradientThatIsInfiniteByRight) {
  const auto f = [](Tape64&, std::span<const Var64> x) { return sqrt(x[0]); };
  const auto right = detail::find_blame(f, {{3}}, {{0, 1, 2}}, {}, 1);
  EXPECT_TRUE(right.empty()) << text(right);
  Planted planted("", "sqrt", 0, off_by(2, std::nan("")));
  const auto faulty = [&](Tape64& tape, std::span<const Var64> x) {
    tape.observe(planted);
    return f(tape, x);
  };
  const auto blame = detail::find_blame(faulty, {{3}}, {{0, 1, 2}}, {}, 1);
  EXPECT_TRUE(names_only(blame, "", "sqrt", "x (input 0)"));
  EXPECT_EQ(blame.at(0).worst.place, Shape{2});
}

// ---- what it leaves behind

TEST(Blame, LeavesParametersAsTheyWere) {
  auto model = language_model();
  const auto list = parameters<double>(model);
  std::vector<Numbers> values, grads;
  std::vector<std::uint64_t> versions;
  for (std::size_t i = 0; i < list.size(); ++i) {
    Parameter<double> p = list[i].parameter.share();
    if (i % 2 == 0) p.grad() = random_array<double>(p.shape(), i);
    values.emplace_back(p.data(), p.data() + p.size());
    grads.push_back(p.has_grad() ? Numbers(p.grad_data(), p.grad_data() + p.size()) : Numbers());
    versions.push_back(p.version());
  }
  const auto expect_unchanged = [&] {
    for (std::size_t i = 0; i < list.size(); ++i) {
      SCOPED_TRACE(list[i].name);
      Parameter<double> p = list[i].parameter.share();
      EXPECT_EQ(Numbers(p.data(), p.data() + p.size()), values[i]);
      EXPECT_EQ(p.version(), versions[i]);
      EXPECT_EQ(p.has_grad() ? Numbers(p.grad_data(), p.grad_data() + p.size()) : Numbers(), grads[i]);
    }
  };
  Planted planted("blocks.0.linear1", "linear_gelu", 1, factor(1.01));
  EXPECT_EQ(blame_in(model, {&planted}).size(), 1u);
  expect_unchanged();

  // Also where an op gives up while its parameter is moved.
  struct Weary {};
  std::size_t runs = 0;
  bool was_moved = false;
  const auto f = [&](Tape64& tape, std::span<const Var64>) {
    const Var64 x = tape.var(list[0].parameter), y = tape.output("weary", x.shape(), x);
    was_moved = Numbers(x.data(), x.data() + x.size()) != values[0];
    if (++runs == 7) throw Weary();
    set_each(y, x, [](double v) { return v; });
    tape.on_backward(y, [=] { add_slope(x, y, [](double) { return 1.0; }); });
    return y;
  };
  EXPECT_THROW(detail::find_blame(f, {}, {}, list, 0), Weary);
  EXPECT_TRUE(was_moved);
  expect_unchanged();
}

}  // namespace
}  // namespace xtape::gradcheck_blame_test
