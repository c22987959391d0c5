// Optimizers, clipping and schedules against PyTorch's, step by step, and a whole training run.

#include <functional>

#include "reference_case.hpp"

namespace xtape::reference_training_test {
namespace {

using List = ParameterList<double>;

/// The two parameters "0" and "1" of an optimizer case at their initial values.
List initial_parameters(ReferenceFile& file) {
  List list;
  for (const std::string name : {"0", "1"}) {
    const xt::xarray<double> initial = file.array<double>("initial." + name);
    list.emplace_back(name, Parameter<double>(Shape(initial.shape())));
    xt::noalias(list.back().parameter.write()) = initial;
  }
  return list;
}

/// Gives the file's gradients to the optimizer and compares the parameters after each step. `before_step(s)` may clip
/// the gradients and set the rate.
template <class Optimizer, class BeforeStep, class AfterStep>
void expect_steps(ReferenceFile& file, Optimizer& optimizer, BeforeStep before_step, AfterStep after_step) {
  const xt::xarray<double> rates = file.array<double>("learning_rates");
  for (std::size_t s = 0; s < file.number("steps"); ++s) {
    const std::string step = std::to_string(s) + ".";
    for (auto& [name, parameter] : optimizer.parameters())
      if (file.contains("grad." + step + name))
        xt::noalias(parameter.grad()) = file.array<double>("grad." + step + name);
    before_step(s);
    EXPECT_NEAR(optimizer.learning_rate(), rates(s), tolerance::reference) << "step " << s;
    optimizer.step();
    for (auto& [name, parameter] : optimizer.parameters())
      EXPECT_TRUE(near(parameter.value(), file.array<double>("after." + step + name), tolerance::reference))
          << step + name;
    after_step(step);
  }
  file.expect_all_read();
}
template <class Optimizer, class BeforeStep>
void expect_steps(ReferenceFile& file, Optimizer& optimizer, BeforeStep before_step) {
  expect_steps(file, optimizer, before_step, [](const std::string&) {});
}

/// Adam or AdamW as the file's settings say.
template <class Optimizer, class Options>
Optimizer adam(ReferenceFile& file, Options options) {
  const std::string betas = file.setting("betas");
  options.learning_rate = file.real("lr");
  options.betas = {std::stod(betas), std::stod(betas.substr(betas.find(',') + 1))};
  options.eps = file.real("eps");
  options.weight_decay = file.real("weight_decay", 0);
  options.decay = Decay::all;
  return Optimizer(initial_parameters(file), options);
}
AdamW<double> adamw(ReferenceFile& file) { return adam<AdamW<double>>(file, AdamWOptions{}); }

TEST(TrainingReference, SgdTakesTheSameSteps) {
  ReferenceFile file("sgd");
  Sgd<double> optimizer(initial_parameters(file), {.learning_rate = file.real("lr"), .decay = Decay::all});
  expect_steps(file, optimizer, [](std::size_t) {});
}

TEST(TrainingReference, SgdWithNesterovTakesTheSameSteps) {
  ReferenceFile file("sgd_nesterov");
  Sgd<double> optimizer(initial_parameters(file), {.learning_rate = file.real("lr"),
                                                   .momentum = file.real("momentum"),
                                                   .nesterov = true,
                                                   .weight_decay = file.real("weight_decay"),
                                                   .decay = Decay::all});
  expect_steps(file, optimizer, [](std::size_t) {});
}

TEST(TrainingReference, AdamTakesTheSameSteps) {
  ReferenceFile file("adam");
  auto optimizer = adam<Adam<double>>(file, AdamOptions{});
  expect_steps(file, optimizer, [](std::size_t) {});
}

TEST(TrainingReference, SgdWithMomentumTakesTheSameSteps) {
  ReferenceFile file("sgd_momentum");
  Sgd<double> optimizer(initial_parameters(file), {.learning_rate = file.real("lr"),
                                                   .momentum = file.real("momentum"),
                                                   .weight_decay = file.real("weight_decay"),
                                                   .decay = Decay::all});
  expect_steps(file, optimizer, [](std::size_t) {});
}

TEST(TrainingReference, AdamWithDecayTakesTheSameSteps) {
  ReferenceFile file("adam_weight_decay");
  auto optimizer = adam<Adam<double>>(file, AdamOptions{});
  expect_steps(file, optimizer, [](std::size_t) {});
}

// The second parameter's first gradient comes in step 3.
TEST(TrainingReference, AdamWTakesTheSameStepsWhenAGradientComesLate) {
  ReferenceFile file("adamw_late_gradient");
  EXPECT_FALSE(file.contains("grad.2.1"));
  AdamW<double> optimizer = adamw(file);
  expect_steps(file, optimizer, [](std::size_t) {});
}

/// The second parameter's group, as the file's settings say.
ParameterGroup group(const ReferenceFile& file) {
  return {.name = "1", .learning_rate_factor = file.real("factor"), .weight_decay = file.real("group_weight_decay")};
}

TEST(TrainingReference, AdamWTakesTheSameStepsInGroups) {
  ReferenceFile file("adamw_groups");
  auto optimizer = adam<AdamW<double>>(file, AdamWOptions{.groups = {group(file)}});
  expect_steps(file, optimizer, [](std::size_t) {});
}

TEST(TrainingReference, SgdTakesTheSameStepsInGroups) {
  ReferenceFile file("sgd_groups");
  Sgd<double> optimizer(initial_parameters(file), {.learning_rate = file.real("lr"),
                                                   .momentum = file.real("momentum"),
                                                   .weight_decay = file.real("weight_decay"),
                                                   .decay = Decay::all,
                                                   .groups = {group(file)}});
  expect_steps(file, optimizer, [](std::size_t) {});
}

TEST(TrainingReference, AdamWTakesTheSameSteps) {
  ReferenceFile file("adamw");
  AdamW<double> optimizer = adamw(file);
  expect_steps(file, optimizer, [](std::size_t) {});
}

TEST(TrainingReference, AdamWTakesTheSameStepsAfterClipping) {
  ReferenceFile file("adamw_clip");
  AdamW<double> optimizer = adamw(file);
  const xt::xarray<double> norms = file.array<double>("grad_norms");
  expect_steps(file, optimizer, [&](std::size_t s) {
    EXPECT_NEAR(clip_grad_norm(optimizer.parameters(), file.real("max_norm")), norms(s), tolerance::reference);
  });
}

TEST(TrainingReference, AdamWTakesTheSameStepsUnderTheSchedule) {
  ReferenceFile file("adamw_warmup_cosine");
  AdamW<double> optimizer = adamw(file);
  const double rate = file.real("lr");
  const WarmupCosineSchedule schedule{.rate = rate,
                                      .warmup = file.number("warmup_steps"),
                                      .total = file.number("total_steps"),
                                      .floor = rate * file.real("final_fraction")};
  expect_steps(file, optimizer, [&](std::size_t s) { optimizer.set_learning_rate(schedule(s)); });
}

// A wrong schedule, taken one step too late, must not pass for the right one.
TEST(TrainingReference, ALateScheduleIsSeen) {
  ReferenceFile file("adamw_warmup_cosine");
  const xt::xarray<double> rates = file.array<double>("learning_rates");
  const WarmupCosineSchedule schedule{.rate = 1e-2, .warmup = 3, .total = 12, .floor = 1e-3};
  for (std::size_t s = 0; s < 12; ++s) {
    EXPECT_NEAR(schedule(s), rates(s), tolerance::reference);
    const bool on_the_peak = s == 2;  // the last step of the warm-up and the first of the cosine have the same rate
    EXPECT_EQ(std::abs(schedule(s + 1) - rates(s)) > tolerance::reference, !on_the_peak) << "step " << s;
  }
}

TEST(TrainingReference, AveragesOfTheWeightsAreTheSame) {
  ReferenceFile file("sgd_average");
  Sgd<double> optimizer(initial_parameters(file), {.learning_rate = file.real("lr")});
  ExponentialMovingAverage<double> average(optimizer.parameters(), file.real("average_decay"));
  const auto after_step = [&](const std::string& step) {
    average.update();
    for (const std::string name : {"0", "1"}) {
      const auto& averaged = average.state()[name == "0" ? 0 : 1];
      EXPECT_EQ(averaged.name, "average." + name);
      EXPECT_TRUE(near(averaged.parameter.value(), file.array<double>("average." + step + name), tolerance::reference))
          << step + name;
    }
  };
  expect_steps(
      file, optimizer, [](std::size_t) {}, after_step);
}

TEST(TrainingReference, SchedulesAreThoseOfPyTorch) {
  const auto expect = [](const char* name, auto make) {
    ReferenceFile file(name);
    const std::function<double(std::uint64_t)> schedule = make(file);
    const xt::xarray<double> rates = file.array<double>("learning_rates");
    ASSERT_GE(rates.size(), 8U);
    for (std::size_t s = 0; s < rates.size(); ++s)
      EXPECT_NEAR(schedule(s), rates(s), tolerance::reference) << name << ", step " << s;
  };
  const auto one_cycle = [](const ReferenceFile& file) {
    return OneCycleSchedule{.rate = file.real("lr"),
                            .total = file.number("total"),
                            .warmup_fraction = file.real("pct_start"),
                            .start_divisor = file.real("div_factor"),
                            .end_divisor = file.real("final_div_factor")};
  };
  expect("schedule_one_cycle", one_cycle);
  expect("schedule_one_cycle_fraction", one_cycle);
  expect("schedule_one_cycle_no_way_up", one_cycle);
  const auto linear = [](const ReferenceFile& file) {
    return WarmupLinearSchedule{.rate = file.real("lr"),
                                .warmup = file.number("warmup"),
                                .total = file.number("total"),
                                .floor = file.real("floor")};
  };
  expect("schedule_linear", linear);
  expect("schedule_linear_warmup", linear);
  expect("schedule_step", [](const ReferenceFile& file) {
    return StepSchedule{.rate = file.real("lr"), .size = file.number("size"), .factor = file.real("gamma")};
  });
  expect("schedule_noam", [](const ReferenceFile& file) {
    return InverseSquareRootSchedule{
        .factor = file.real("lr"), .width = file.number("width"), .warmup = file.number("warmup")};
  });
}

TransformerLm<double> decoder(const ReferenceFile& file, std::size_t length) {
  Rng rng(1);
  return TransformerLm<double>({.vocabulary = file.number("vocabulary"),
                                .length = length,
                                .width = file.number("d_model"),
                                .heads = file.number("num_heads"),
                                .layers = file.number("num_layers")},
                               rng);
}

TEST(TrainingReference, ADecoderIsTrainedToTheSameLossesAndParameters) {
  ReferenceFile file("decoder_training");
  auto model = decoder(file, 10);
  List list = parameters<double>(model);
  for (auto& [name, parameter] : list) xt::noalias(parameter.write()) = file.array<double>("initial." + name);
  AdamW<double> optimizer(list, {.learning_rate = file.real("lr"),
                                 .betas = {0.9, 0.95},
                                 .eps = file.real("eps"),
                                 .weight_decay = file.real("weight_decay"),
                                 .decay = Decay::all});
  const xt::xarray<double> losses = file.array<double>("losses"), norms = file.array<double>("grad_norms");

  Tape<double> tape;
  for (std::size_t s = 0; s < file.number("steps"); ++s) {
    const std::string step = std::to_string(s);
    tape.clear();
    optimizer.zero_grad();
    const Var<double> logits = model(tape, file.integers("tokens." + step));
    const Var<double> loss = cross_entropy(logits, file.integers("targets." + step), {.ignore_index = -100});
    tape.backward(loss);
    EXPECT_NEAR(loss.item(), losses(s), tolerance::reference_training) << "step " << s;
    EXPECT_NEAR(clip_grad_norm(list, file.real("max_norm")), norms(s), tolerance::reference_training) << "step " << s;
    optimizer.step();
  }
  for (auto& [name, parameter] : list)
    EXPECT_TRUE(near(parameter.value(), file.array<double>("final." + name), tolerance::reference_training)) << name;
  file.expect_all_read();
}

}  // namespace
}  // namespace xtape::reference_training_test
