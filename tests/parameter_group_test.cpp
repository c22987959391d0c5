// Groups of an optimizer's parameters: who is in which, with what rate and decay.

#include <limits>

#include "behaviour.hpp"

namespace xtape::parameter_group_test {
namespace {

/// Weight, bias, gain and embedding of these names, each the number 1 with the gradient 1.
template <class T>
ParameterList<T> small_model() {
  ParameterList<T> list;
  const auto add = [&](const char* name, Role role) {
    list.emplace_back(name, parameter_of(xt::xarray<T>{1}, role)).parameter.grad()(0) = 1;
  };
  add("embedding.weight", Role::embedding);
  add("blocks.0.linear.weight", Role::weight), add("blocks.0.linear.bias", Role::bias);
  add("blocks.1.linear.weight", Role::weight), add("blocks.1.linear.bias", Role::bias);
  add("norm.weight", Role::gain);
  return list;
}

/// The group of each parameter of the small model.
std::vector<std::string> groups_of(std::vector<ParameterGroup> groups) {
  const auto list = small_model<double>();
  std::vector<std::string> result;
  for (const auto& s : Sgd<double>(list, {.groups = std::move(groups)}).settings()) result.push_back(s.group);
  return result;
}

TEST(ParameterGroup, IsFoundByPatternsOfNames) {
  using Groups = std::vector<std::string>;
  const auto all = [](const char* name) { return Groups(6, name); };
  EXPECT_EQ(groups_of({}), all(""));
  EXPECT_EQ(groups_of({{.name = "*"}}), all("*"));
  EXPECT_EQ(groups_of({{.name = "***e**"}}), all("***e**"));
  EXPECT_EQ(groups_of({{.name = "norm.weight"}}), (Groups{"", "", "", "", "", "norm.weight"}));
  EXPECT_EQ(groups_of({{.name = "*weight"}}), (Groups{"*weight", "*weight", "", "*weight", "", "*weight"}));
  EXPECT_EQ(groups_of({{.name = "blocks.*"}}), (Groups{"", "blocks.*", "blocks.*", "blocks.*", "blocks.*", ""}));
  EXPECT_EQ(groups_of({{.name = "b*s.*.bias"}}), (Groups{"", "", "b*s.*.bias", "", "b*s.*.bias", ""}));
  EXPECT_EQ(groups_of({{.name = "*i*ia*"}}), (Groups{"", "", "*i*ia*", "", "*i*ia*", ""}));
}

TEST(ParameterGroup, IsFoundByRoleAndTheFirstThatFitsCounts) {
  EXPECT_EQ(groups_of({{.role = Role::bias}, {.name = "blocks.0.*"}, {.role = Role::embedding}}),
            (std::vector<std::string>{"* (embedding)", "blocks.0.*", "* (bias)", "", "* (bias)", ""}));
  EXPECT_EQ(groups_of({{.name = "blocks.0.*", .role = Role::bias}, {.name = "blocks.*"}}),
            (std::vector<std::string>{"", "blocks.*", "blocks.0.* (bias)", "blocks.*", "blocks.*", ""}));
}

TEST(ParameterGroup, WithoutAParameterIsRefusedByName) {
  const auto refused = [](std::vector<ParameterGroup> groups, std::initializer_list<const char*> parts) {
    const auto list = small_model<float>();
    expect_message<Error>([&] { AdamW<float>(list, {.groups = groups}); }, parts);
  };
  refused({{.name = "block.*"}}, {"[AdamW]", "group block.* with none"});
  refused({{.name = "norm"}}, {"group norm with none"});
  refused({{.name = ""}}, {"with none"});
  refused({{.name = "norm.*"}, {.name = "blocks.*", .role = Role::gain}}, {"group blocks.* (gain) with none"});
  refused({{.name = "*"}, {.name = "norm.*"}}, {"group norm.*", "only parameters of earlier groups"});
  for (const double bad : {-1., std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    refused({{.learning_rate_factor = bad}}, {"[AdamW]", "learning rate factor"});
    refused({{.weight_decay = bad}}, {"[AdamW]", "group's weight decay"});
  }
}

TEST(ParameterGroup, ScalesTheRateAlsoWhenItChanges) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    auto list = small_model<T>();
    Sgd<T> sgd(list, {.learning_rate = .5,
                      .groups = {{.name = "blocks.0.*", .learning_rate_factor = .5},
                                 {.role = Role::gain, .learning_rate_factor = 0}}});
    sgd.step();
    const auto values = [&] {
      std::vector<T> values;
      for (const auto& entry : list) values.push_back(entry.parameter.value()(0));
      return values;
    };
    EXPECT_EQ(values(), (std::vector<T>{T(.5), T(.75), T(.75), T(.5), T(.5), 1}));
    sgd.set_learning_rate(.25);
    sgd.step();
    EXPECT_EQ(values(), (std::vector<T>{T(.25), T(.625), T(.625), T(.25), T(.25), 1}));
  });
}

TEST(ParameterGroup, ItsDecayIsThatOfAllItsMembers) {
  const auto list = small_model<double>();
  const AdamW<double> adamw(list, {.weight_decay = .1,
                                   .groups = {{.name = "blocks.0.*", .weight_decay = .2},
                                              {.name = "blocks.1.*", .learning_rate_factor = 2},
                                              {.role = Role::embedding, .weight_decay = .3}}});
  std::vector<double> decays;
  for (const auto& s : adamw.settings()) decays.push_back(s.weight_decay);
  EXPECT_EQ(decays, (std::vector<double>{.3, .2, .2, .1, 0, 0}));
  EXPECT_EQ(adamw.decaying(), (std::vector<std::string>{"embedding.weight", "blocks.0.linear.weight",
                                                        "blocks.0.linear.bias", "blocks.1.linear.weight"}));
}

TEST(ParameterGroup, DescribeShowsThemAsATable) {
  auto list = small_model<float>();
  list[5].parameter.freeze();
  AdamW<float> adamw(list, {.learning_rate = .01,
                            .weight_decay = .1,
                            .groups = {{.name = "blocks.0.*", .learning_rate_factor = .5},
                                       {.role = Role::embedding, .weight_decay = .003}}});
  adamw.set_learning_rate(.02);
  EXPECT_EQ(describe(adamw),
            "parameter               role          learning rate  weight decay  group\n"
            "embedding.weight        embedding              0.02         0.003  * (embedding)\n"
            "blocks.0.linear.weight  weight                 0.01           0.1  blocks.0.*\n"
            "blocks.0.linear.bias    bias                   0.01             0  blocks.0.*\n"
            "blocks.1.linear.weight  weight                 0.02           0.1\n"
            "blocks.1.linear.bias    bias                   0.02             0\n"
            "norm.weight             gain, frozen           0.02             0\n");
}

TEST(ParameterGroup, StaysWithAnOptimizerThatIsCopiedOrMoved) {
  auto list = small_model<float>();
  auto first = std::make_unique<Sgd<float>>(list, SgdOptions{.groups = {{.name = "norm.*", .weight_decay = .5}}});
  const std::string table = describe(*first);
  const Sgd<float> copy = *first, moved = std::move(*first);
  first.reset();
  EXPECT_EQ(describe(copy), table);
  EXPECT_EQ(describe(moved), table);
}

// ---- tied parameters

TEST(TiedParameters, HaveOneStateAndMoveOnce) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Parameter<T> shared = parameter_of(xt::xarray<T>{1});
    const ParameterList<T> joined{{"encoder.embedding", shared}, {"decoder.embedding", shared}};
    shared.grad()(0) = 1;
    AdamW<T> adamw(joined, {.learning_rate = .125, .weight_decay = .5});
    ASSERT_EQ(adamw.state().size(), 3U);
    EXPECT_EQ(adamw.state()[0].name, "exp_avg.encoder.embedding");
    adamw.step();
    EXPECT_NEAR(shared.value()(0), (1 - .125 * .5) - .125, tolerance::behaviour<T>);
    EXPECT_EQ(adamw.state()[2].parameter.value()(), T(1));
    EXPECT_EQ(adamw.settings().size(), 1U);
  });
}

TEST(TiedParameters, AreClippedOnce) {
  in_both_types([](auto zero) {
    using T = decltype(zero);
    Parameter<T> shared = parameter_of(xt::xarray<T>{1, 2});
    shared.grad()(0) = 3, shared.grad()(1) = 4;
    const ParameterList<T> joined{{"a", shared}, {"b", shared}};
    EXPECT_EQ(clip_grad_norm(joined, 1), 5.0);
    EXPECT_NEAR(shared.grad()(0), .6, tolerance::behaviour_double);
  });
}

}  // namespace
}  // namespace xtape::parameter_group_test
