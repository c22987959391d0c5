#include <xtape/framework/train/gradcheck/argument_names.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace xtape::detail {
namespace {

struct Names {
  std::string_view op;
  std::array<std::string_view, 4> names;
  std::size_t count() const {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), std::string_view()) - names.begin());
  }
};

/// Under the names that ops have on a tape. Of an op's rows the first with enough names counts; inputs at the end may
/// be absent.
constexpr Names catalogue[] = {
    {"attention", {"q", "k", "v", "bias"}},
    {"attention_packed", {"qkv", "bias"}},
    {"attention_with_weights", {"q", "k", "v", "bias"}},
    {"linear", {"x", "weight", "bias"}},
    {"linear_gelu", {"x", "weight", "bias"}},
    {"linear_gelu_tanh", {"x", "weight", "bias"}},
    {"embedding", {"weight"}},
    {"layer_norm", {"x", "gain or bias"}},
    {"layer_norm", {"x", "gain", "bias"}},
    {"rms_norm", {"x", "gain"}},
    {"matmul", {"a", "b"}},
    {"add", {"a", "b"}},
    {"subtract", {"a", "b"}},
    {"multiply", {"a", "b"}},
    {"divide", {"a", "b"}},
    {"pow", {"a", "b"}},
    {"maximum", {"a", "b"}},
    {"minimum", {"a", "b"}},
    {"where", {"a", "b"}},
    {"swiglu", {"gate", "up"}},
    {"mse", {"x", "target"}},
    {"l1", {"x", "target"}},
    {"bce_with_logits", {"x", "target"}},
    {"kl_div", {"x", "target"}},
    {"cross_entropy", {"logits"}},
};

/// Those whose only input is x.
constexpr std::string_view of_x[] = {
    "negate", "exp",          "log",  "log1p",   "sqrt",    "rsqrt",   "square",     "abs",       "sin",
    "cos",    "tanh",         "relu", "sigmoid", "silu",    "gelu",    "softplus",   "gelu_tanh", "clamp",
    "sum",    "mean",         "var",  "max",     "cumsum",  "slice",   "split",      "pad",       "transpose",
    "gather", "index_select", "flip", "rope",    "dropout", "softmax", "log_softmax"};

}  // namespace

std::string argument_name(std::string_view op, std::size_t i, std::size_t count) {
  if (count == 1 && std::find(std::begin(of_x), std::end(of_x), op) != std::end(of_x)) return "x";
  if (op == "concat" || op == "stack") return fmt::format("part {} of {}", i + 1, count);
  for (const Names& row : catalogue)
    if (row.op == op && count <= row.count()) return std::string(row.names[i]);
  return fmt::format("{} of {}", i + 1, count);
}

}  // namespace xtape::detail
