// Averages of the weights: their values, evaluation with them, files.

#include <limits>

#include "behaviour.hpp"
#include "files.hpp"

namespace xtape::moving_average_test {
namespace {

/// Parameters "w" (2) and "b" (1) and numbers that no rounding leaves alone.
template <class T>
ParameterList<T> two_parameters() {
  ParameterList<T> list;
  list.emplace_back("w", parameter_of(xt::xarray<T>{T(1) / 3, T(-2) / 7}));
  list.emplace_back("b", parameter_of(xt::xarray<T>{T(.1)}, Role::bias));
  return list;
}
template <class T>
std::vector<xt::xarray<T>> values(const ParameterList<T>& list) {
  std::vector<xt::xarray<T>> result;
  for (const auto& entry : list) result.push_back(values_of(entry.parameter));
  return result;
}
template <class T>
void train(ParameterList<T>& list) {
  for (auto& entry : list)
    for (auto& x : entry.parameter.write()) x = x * T(1.1) + T(.01);
}

TEST(MovingAverage, FollowsTheWeights) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    ParameterList<T> list{{"w", parameter_of(xt::xarray<T>{4})}};
    ExponentialMovingAverage<T> average(list, .75);
    const auto set = [&](double x) { list[0].parameter.write()(0) = static_cast<T>(x); };
    EXPECT_EQ(average.state()[0].parameter.value()(0), T(4));
    set(8), average.update();
    EXPECT_EQ(average.state()[0].parameter.value()(0), T(5));  // 4 + (8 - 4) / 4
    set(-3), average.update();
    EXPECT_EQ(average.state()[0].parameter.value()(0), T(3));  // 5 + (-3 - 5) / 4
    ExponentialMovingAverage<T> none(list, 0);
    set(7), none.update();
    EXPECT_EQ(none.state()[0].parameter.value()(0), T(7));
  });
}

TEST(MovingAverage, IsUsedAndTheTrainedWeightsComeBackBitForBit) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = two_parameters<T>();
    ExponentialMovingAverage<T> average(list, .9);
    train(list), average.update();
    const auto trained = values(list), averages = values(average.state());
    EXPECT_NE(trained, averages);
    {
      const auto averaged = average.use();
      EXPECT_EQ(values(list), averages);
      EXPECT_EQ(values(average.state()), averages);
      train(list);  // whatever an evaluation does to them
    }
    EXPECT_EQ(values(list), trained);
    EXPECT_EQ(values(average.state()), averages);
    EXPECT_THROW(
        {
          const auto averaged = average.use();
          throw std::runtime_error("evaluation");
        },
        std::runtime_error);
    EXPECT_EQ(values(list), trained);
    average.update();  // and use() is over
    const auto again = average.use();
  });
}

TEST(MovingAverage, CannotBeUpdatedOrUsedTwiceWhileItIsInUse) {
  auto list = two_parameters<float>();
  ExponentialMovingAverage<float> average(list);
  train(list);
  const auto trained = values(list), averages = values(average.state());
  {
    const auto averaged = average.use();
    expect_message<Error>([&] { average.update(); }, {"[ExponentialMovingAverage]", "use()"});
    expect_message<Error>([&] { const auto twice = average.use(); }, {"[ExponentialMovingAverage]", "in use"});
    EXPECT_EQ(values(list), averages);
  }
  EXPECT_EQ(values(list), trained);
  EXPECT_EQ(values(average.state()), averages);
}

TEST(MovingAverage, ARecordMadeBeforeItsUseIsNotDifferentiatedAfterIt) {
  auto list = two_parameters<double>();
  ExponentialMovingAverage<double> average(list);
  Tape<double> tape;
  const Var<double> loss = sum(tape.var(list[0].parameter) * list[0].parameter);
  const auto averaged = average.use();
  expect_message<TapeError>([&] { tape.backward(loss); }, {"written"});
}

TEST(MovingAverage, TakesATiedParameterOnce) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = two_parameters<T>();
    list.emplace_back("tied", list[0].parameter);
    ExponentialMovingAverage<T> average(list, .7);
    ASSERT_EQ(average.state().size(), 2U);
    EXPECT_EQ(average.state()[0].name, "average.w");
    EXPECT_EQ(average.state()[1].parameter.role(), Role::bias);
    const T before = list[0].parameter.value()(0);
    list[0].parameter.write()(0) = 2;
    average.update();
    EXPECT_NEAR(average.state()[0].parameter.value()(0), .7 * before + .3 * 2, tolerance::behaviour<T>);
    const auto averaged = average.use();
    EXPECT_EQ(list[2].parameter.value()(0), average.state()[0].parameter.value()(0));
  });
}

TEST(MovingAverage, OfAFrozenParameterKeepsItsBits) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    ParameterList<T> list{{"frozen", parameter_of(random_array<T>({1000}, 1))}};
    list[0].parameter.freeze();
    for (const double decay : {.3, .7, .9, .999}) {
      ExponentialMovingAverage<T> average(list, decay);
      for (int i = 0; i < 10; ++i) average.update();
      EXPECT_EQ(values(average.state()), values(list)) << decay;
    }
  });
}

TEST(MovingAverage, ContinuesFromAFile) {
  const TemporaryFolder folder;
  auto list = two_parameters<float>();
  ExponentialMovingAverage<float> average(list, .9);
  train(list), average.update();
  save_safetensors(folder / "average.safetensors", average.state());
  ExponentialMovingAverage<float> resumed(list, .9);
  load_safetensors(folder / "average.safetensors", resumed.state());
  for (auto* each : {&average, &resumed}) each->update();
  EXPECT_EQ(values(resumed.state()), values(average.state()));
}

TEST(MovingAverage, OutOfRangeDecaysAreRefused) {
  for (const double bad : {-.1, 1., std::numeric_limits<double>::quiet_NaN()})
    expect_message<Error>([&] { ExponentialMovingAverage<float>({}, bad); }, {"[ExponentialMovingAverage]", "decay"});
}

}  // namespace
}  // namespace xtape::moving_average_test
