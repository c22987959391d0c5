// Watching a tape: what observers are told and in which order, values by their place, one op's backward alone.

#include "support.hpp"

namespace xtape::tape_observer_test {
namespace {

using Array = xt::xarray<double>;

/// Writes down what it is told, under its name.
struct Diary : TapeObserver<double> {
  std::string name;
  std::vector<std::string>& lines;
  Diary(std::string name_, std::vector<std::string>& lines_) : name(std::move(name_)), lines(lines_) {}

  void opened(Var<double> y) override { lines.push_back(name + " opened " + y.op()); }
  void closed(Var<double> y) override { lines.push_back(name + " closed " + y.op()); }
  void backward(Var<double> y, const std::function<void()>& run) override {
    lines.push_back(name + " before " + y.op());
    run();
    lines.push_back(name + " after " + y.op());
  }
};

/// x as two outputs of one op: itself and twice itself.
std::array<Var<double>, 2> once_and_twice(Var<double> x) {
  Tape<double>& tape = x.tape();
  const Var<double> once = tape.output("pair", x.shape(), x), twice = tape.output("pair", x.shape(), x);
  set_each(once, x, [](double v) { return v; });
  set_each(twice, x, [](double v) { return 2 * v; });
  tape.on_backward({twice, once}, [=] {
    add_slope(x, once, [](double) { return 1.0; });
    add_slope(x, twice, [](double) { return 2.0; });
  });
  return {once, twice};
}

using Lines = std::vector<std::string>;

TEST(TapeObserver, IsToldOfEveryOpInTheOrderOfRecordingAndOfItsReverse) {
  Tape<double> tape;
  Lines lines;
  Diary diary("d", lines);
  tape.observe(diary);
  tape.backward(sum(exp(tape.input(Array{1, 2}, true))));
  EXPECT_EQ(lines, (Lines{"d opened exp", "d closed exp", "d opened sum", "d closed sum", "d before sum", "d after sum",
                          "d before exp", "d after exp"}));
}

TEST(TapeObserver, IsToldOfAFusedOpThatClosesWithoutAGradient) {
  Tape<double> tape;
  Lines lines;
  Diary diary("d", lines);
  const auto x = tape.input(Array{{1, 2}});
  tape.observe(diary);
  linear_gelu(x, x);
  EXPECT_EQ(lines, (Lines{"d opened linear_gelu", "d closed linear_gelu"}));
}

TEST(TapeObserver, IsToldOfEachOutputThatOpensAndOnceOfAnOpThatCloses) {
  Tape<double> tape;
  Lines lines;
  Diary diary("d", lines);
  const auto x = tape.input(Array{1, 2}, true);
  tape.observe(diary);
  const auto [once, twice] = once_and_twice(x);
  EXPECT_EQ(lines, (Lines{"d opened pair", "d opened pair", "d closed pair"}));
  lines.clear();
  tape.backward(sum(twice));  // the callback runs once, under the first output's name
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "d before pair"), 1);
  EXPECT_EQ(gradient(x), (Array{2, 2}));
}

TEST(TapeObserver, IsToldThatAnOpOpensAndClosesWhereThereIsNoGradientAsWell) {
  Tape<double> tape;
  Lines lines;
  Diary diary("d", lines);
  tape.observe(diary);
  exp(tape.input(Array{1, 2}));
  {
    const auto guard = tape.no_grad();
    once_and_twice(tape.input(Array{1, 2}, true));
  }
  one_hot(tape, tape.integers(xt::xarray<int>{0, 1}), 2);  // it never has a gradient, and is not closed
  EXPECT_EQ(lines, (Lines{"d opened exp", "d closed exp", "d opened pair", "d opened pair", "d closed pair",
                          "d opened one_hot"}));
}

TEST(TapeObserver, IsToldOfTheFirstOutputThatOpenedWhenAnOpCloses) {
  struct First : TapeObserver<double> {
    std::vector<std::size_t> places;
    void closed(Var<double> y) override { places.push_back(y.tape().place(y)); }
  } first;
  Tape<double> tape;
  tape.observe(first);
  for (const bool gradient : {true, false}) {  // it names the second before the first
    tape.clear();
    once_and_twice(tape.input(Array{1, 2}, gradient));
  }
  EXPECT_EQ(first.places, (std::vector<std::size_t>{1, 1}));
}

TEST(TapeObserver, SeveralStandAroundACallbackTheLastOutermost) {
  Tape<double> tape;
  Lines lines;
  Diary first("1", lines), second("2", lines), third("3", lines);
  tape.observe(first), tape.observe(second), tape.observe(third);
  tape.observe(second);  // is not told twice, but counts as the last now
  const auto y = exp(tape.input(1.0, true));
  EXPECT_EQ(lines,
            (Lines{"1 opened exp", "3 opened exp", "2 opened exp", "1 closed exp", "3 closed exp", "2 closed exp"}));
  lines.clear();
  tape.backward(y);
  EXPECT_EQ(lines,
            (Lines{"2 before exp", "3 before exp", "1 before exp", "1 after exp", "3 after exp", "2 after exp"}));
  lines.clear();
  tape.unobserve(second), tape.unobserve(third), tape.unobserve(third);
  tape.backward(y);
  EXPECT_EQ(lines, (Lines{"1 before exp", "1 after exp"}));
}

TEST(TapeObserver, StandsInPlaceOfTheCallback) {
  struct Doubling : TapeObserver<double> {
    void backward(Var<double> y, const std::function<void()>& run) override {
      if (std::string(y.op()) == "sin") run(), run();
      if (std::string(y.op()) == "exp") return;
    }
  } doubling;
  Tape<double> tape;
  tape.observe(doubling);
  const auto x = tape.input(0.5, true), z = tape.input(0.5, true);
  tape.backward(sin(x));
  EXPECT_DOUBLE_EQ(x.grad()(), 2 * std::cos(0.5));
  tape.backward(exp(z));
  EXPECT_EQ(z.grad()(), 0);
}

TEST(TapeObserver, LivesThroughClear) {
  Tape<double> tape;
  Lines lines;
  Diary diary("d", lines);
  tape.observe(diary);
  tape.clear();
  exp(tape.input(1.0));
  EXPECT_EQ(lines, (Lines{"d opened exp", "d closed exp"}));
}

/// Throws where it is told to.
struct Stop {};
struct Stopping : TapeObserver<double> {
  enum { opening, closing, callback } at;
  explicit Stopping(decltype(at) at_) : at(at_) {}
  void stop_if(bool here) const {
    if (here) throw Stop{};
  }
  void opened(Var<double> y) override { stop_if(at == opening && y.op() == std::string("pair")); }
  void closed(Var<double> y) override { stop_if(at == closing && y.op() == std::string("pair")); }
  void backward(Var<double> y, const std::function<void()>& run) override {
    run();
    stop_if(at == callback && y.op() == std::string("pair"));
  }
};

TEST(TapeObserver, MayThrowAndTheTapeIsGoodAgainAfterClear) {
  Parameter<double> p({2});
  p.write() = Array{1, 2};
  for (const auto at : {Stopping::opening, Stopping::closing, Stopping::callback}) {
    Tape<double> tape;
    Stopping stopping(at);
    tape.observe(stopping);
    const auto run = [&] {
      const auto x = exp(tape.var(p));
      tape.backward(sum(once_and_twice(x)[1]));
    };
    EXPECT_THROW(run(), Stop);
    tape.unobserve(stopping);
    tape.clear();
    p.zero_grad();
    run();
    EXPECT_TRUE(near(p.grad(), Array{2 * std::exp(1.0), 2 * std::exp(2.0)}, tolerance::two_paths_double)) << at;
    EXPECT_EQ(tape.size(), 5u);
  }
}

TEST(TapeObserver, MayBringAnother) {
  struct Inviting : TapeObserver<double> {
    TapeObserver<double>* guest = nullptr;
    void opened(Var<double> y) override { y.tape().observe(*guest); }
  } inviting;
  Tape<double> tape;
  Lines lines;
  Diary guest("g", lines);
  inviting.guest = &guest;
  tape.observe(inviting);
  exp(tape.input(1.0));
  sin(tape.input(1.0));
  EXPECT_EQ(lines, (Lines{"g opened exp", "g closed exp", "g opened sin", "g closed sin"}));
}

TEST(TapeObserver, IsToldOfSpansAsTheyBeginAndEnd) {
  struct Spans : TapeObserver<double> {
    Lines lines;
    void span_began(const char* name) override { lines.push_back(name); }
    void span_ended() override { lines.push_back("end"); }
  } spans;
  Tape<double> tape;
  const auto unseen = tape.span("unseen");
  tape.observe(spans);
  {
    const auto outer = tape.span("outer");
    { const auto inner = tape.span("inner"); }
    tape.clear();
  }
  EXPECT_EQ(spans.lines, (Lines{"outer", "inner", "end", "end"}));
}

// ---- looking at a record

TEST(Record, GivesValuesByTheirPlace) {
  Tape<double> tape;
  for (int run = 0; run < 2; ++run, tape.clear()) {
    const auto a = tape.input(Array{1, 2}, true), b = tape.input(Array{3, 4}, true), y = a * b;
    ASSERT_EQ(tape.size(), 3u);
    EXPECT_EQ(tape.place(a), 0u);
    EXPECT_EQ(tape.place(y), 2u);
    EXPECT_EQ(tape.at(2).data(), y.data());
    EXPECT_EQ(tape.at(2).op(), std::string("multiply"));
    expect_message<ShapeError>([&] { tape.at(3); }, {"[at]", "below 3", "got 3"});
  }
  expect_message<ShapeError>([&] { tape.at(0); }, {"[at]", "below 0"});
}

TEST(Record, GivesWhatAnOutputWasMadeFromAndItsSiblings) {
  Tape<double> tape;
  const auto a = tape.input(Array{1, 2}, true), b = tape.input(Array{3, 4}), y = a * b;
  const auto [once, twice] = once_and_twice(y);
  const auto inputs = tape.inputs(y);
  ASSERT_EQ(inputs.size(), 2u);
  EXPECT_EQ(inputs[0].data(), a.data());
  EXPECT_EQ(inputs[1].data(), b.data());
  EXPECT_FALSE(inputs[1].requires_grad());
  EXPECT_TRUE(tape.inputs(a).empty());
  for (const auto output : {once, twice}) {
    const auto outputs = tape.outputs(output);
    ASSERT_EQ(outputs.size(), 2u);
    EXPECT_EQ(outputs[0].data(), once.data());  // in the order of opening, not of closing
    EXPECT_EQ(outputs[1].data(), twice.data());
  }
  ASSERT_EQ(tape.outputs(a).size(), 1u);
  EXPECT_EQ(tape.outputs(a)[0].data(), a.data());
}

TEST(Record, RefusesHandlesThatAreGone) {
  Tape<double> tape, other;
  const auto x = tape.input(1.0, true), y = exp(x), foreign = exp(other.input(1.0, true));
  for (const auto bad : {foreign, Var<double>()}) {
    EXPECT_THROW(tape.place(bad), TapeError);
    EXPECT_THROW(tape.backward_alone(bad), TapeError);
  }
  tape.clear();
  expect_message<TapeError>([&] { tape.place(y); }, {"[place]", "before clear()"});
  expect_message<TapeError>([&] { tape.inputs(y); }, {"[inputs]", "before clear()"});
  expect_message<TapeError>([&] { tape.outputs(y); }, {"[outputs]", "before clear()"});
  expect_message<TapeError>([&] { tape.backward_alone(y); }, {"[backward_alone]", "before clear()"});
  expect_message<TapeError>([&] { tape.forget_grad(y); }, {"[forget_grad]", "before clear()"});
}

// ---- one op's backward alone

TEST(BackwardAlone, AddsToTheInputsAndKeepsAllGradients) {
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2}, true), y = square(x), z = exp(y);
  xt::noalias(y.grad()) = Array{10, 100};
  xt::noalias(x.grad()) = Array{0.5, 0.25};
  EXPECT_TRUE(tape.backward_alone(y));
  EXPECT_EQ(gradient(x), (Array{20.5, 400.25}));
  EXPECT_EQ(gradient(y), (Array{10, 100}));
  EXPECT_TRUE(tape.backward_alone(y));
  EXPECT_EQ(gradient(x), (Array{40.5, 800.25}));
  EXPECT_FALSE(tape.backward_alone(z)) << "its output has no gradient";
  EXPECT_FALSE(tape.backward_alone(x)) << "no op made it";
  tape.backward(sum(z));  // starts anew, as ever
  EXPECT_DOUBLE_EQ(x.grad()(0), 40.5 + 2 * std::exp(1.0));
}

TEST(BackwardAlone, OfSeveralOutputsReadsThoseWithoutAGradientAsZero) {
  Tape<double> tape;
  const auto x = tape.input(Array{1, 2}, true);
  const auto [once, twice] = once_and_twice(x);
  xt::noalias(twice.grad()) = Array{1, 10};
  EXPECT_TRUE(tape.backward_alone(once));
  EXPECT_EQ(gradient(x), (Array{2, 20}));
}

TEST(BackwardAlone, OfAnOpWhoseParameterWasWrittenIsRefused) {
  Parameter<double> p({2});
  Tape<double> tape;
  const auto y = exp(tape.var(p));
  y.grad() = Array{1, 1};
  p.write() = Array{1, 2};
  expect_message<TapeError>([&] { tape.backward_alone(y); }, {"parameter of shape (2,)", "[exp]"});
}

TEST(ForgetGrad, LetsTheNextTouchStartAnew) {
  Parameter<double> p({2});
  Tape<double> tape;
  const auto v = tape.var(p), x = exp(v);
  xt::noalias(x.grad()) = Array{1, 2};
  xt::noalias(v.grad()) = Array{3, 4};
  tape.forget_grad(reshape(x, {2, 1}));  // the same gradient
  EXPECT_FALSE(tape.slot(x).accumulate);
  tape.forget_grad(v);
  EXPECT_FALSE(p.has_grad());
  EXPECT_EQ(gradient(v), (Array{0, 0}));
  expect_message<TapeError>([&] { tape.forget_grad(tape.input(1.0)); }, {"[forget_grad]", "requires a gradient"});
}

}  // namespace
}  // namespace xtape::tape_observer_test
