#include <xtape/framework/train/profile_cost.hpp>

#include <string_view>

namespace xtape {
namespace {

double real(std::size_t n) { return static_cast<double>(n); }

bool is_product(std::string_view op) {
  return op == "linear" || op == "linear_gelu" || op == "linear_gelu_tanh" || op == "matmul";
}
bool is_attention(std::string_view op) {
  return op == "attention" || op == "attention_packed" || op == "attention_with_weights";
}
bool reads_what_it_gives(std::string_view op) {
  return op == "embedding" || op == "index_select" || op == "gather" || op == "slice";
}

/// Every number of a product is a sum of products: one multiplication and one addition each.
template <class T>
double forward_flop(std::string_view op, const std::vector<Var<T>>& inputs, const Shape& y) {
  if (inputs.empty()) return 0;
  const Shape x = inputs[0].shape();
  if (is_product(op)) return 2 * real(y.size()) * real(x.back());
  if (!is_attention(op) || y.rank() != 3) return 0;
  // Scores are as wide as a query, outputs as wide as a value, over all heads.
  const bool packed = op == "attention_packed";
  if (!packed && (inputs.size() < 2 || inputs[1].shape().rank() != 3)) return 0;
  const std::size_t keys = packed ? y[1] : inputs[1].shape()[1], query_width = packed ? y[2] : x.back();
  return 2 * real(y[0]) * real(y[1]) * real(keys) * real(query_width + y[2]);
}

template <class T>
double input_size(std::string_view op, Var<T> input, Var<T> y) {
  return real(reads_what_it_gives(op) ? y.size() : input.size());
}

}  // namespace

template <class T>
OperationCost forward_cost(Var<T> first) {
  const std::string_view op = first.op();
  const auto inputs = first.tape().inputs(first);
  double numbers = real(first.size());
  for (const Var<T> input : inputs) numbers += input_size(op, input, first);
  return {forward_flop(op, inputs, first.shape()), numbers * sizeof(T)};
}

template <class T>
OperationCost backward_cost(Var<T> first) {
  const std::string_view op = first.op();
  const auto inputs = first.tape().inputs(first);
  double numbers = 0;
  for (const Var<T> output : first.tape().outputs(first)) numbers += real(output.size());
  for (const Var<T> input : inputs) numbers += (input.requires_grad() ? 2 : 1) * input_size(op, input, first);
  double products = is_attention(op) ? 2 : 0;
  for (std::size_t i = 0; is_product(op) && i < inputs.size() && i < 2; ++i) products += inputs[i].requires_grad();
  return {products > 0 ? products * forward_flop(op, inputs, first.shape()) : 0, numbers * sizeof(T)};
}

template OperationCost forward_cost(Var<float>);
template OperationCost forward_cost(Var<double>);
template OperationCost backward_cost(Var<float>);
template OperationCost backward_cost(Var<double>);

}  // namespace xtape
