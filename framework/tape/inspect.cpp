// Looking at a record: values by their place, what an op was made from, one op's backward alone.

#include <xtape/framework/tape/tape.hpp>

namespace xtape {

template <class T>
Var<T> Tape<T>::at(std::size_t place) {
  require<ShapeError>(place < nodes_.size(), "[at] expected a place below {}, the number of values, got {}",
                      nodes_.size(), place);
  return handle(place);
}

template <class T>
std::vector<Var<T>> Tape<T>::inputs(Var<T> y) {
  const Node& made = node(y, "inputs");
  std::vector<Var<T>> result;
  for (std::uint32_t i = 0; i < made.input_count; ++i) result.push_back(handle(made.inputs[i]));
  return result;
}

template <class T>
std::vector<Var<T>> Tape<T>::outputs(Var<T> y) {
  const Node& made = node(y, "outputs");
  if (made.outputs == nullptr) return {y};
  std::vector<Var<T>> result;
  for (std::uint32_t i = 0; i < made.output_count; ++i) result.push_back(handle(made.outputs[i]));
  return result;
}

template <class T>
bool Tape<T>::backward_alone(Var<T> y) {
  const Node& made = node(y, "backward_alone");
  check_versions(made);
  return made.outputs != nullptr && run_callback(made.outputs[0]);
}

template <class T>
void Tape<T>::forget_grad(Var<T> x) {
  Node& owner = gradient_owner(x, "forget_grad");
  if (owner.parameter >= 0) return parameters_[static_cast<std::size_t>(owner.parameter)].zero_grad();
  release_gradient(owner);
  owner.gradient = Gradient::none;
}

template Var<float> Tape<float>::at(std::size_t);
template Var<double> Tape<double>::at(std::size_t);
template std::vector<Var<float>> Tape<float>::inputs(Var<float>);
template std::vector<Var<double>> Tape<double>::inputs(Var<double>);
template std::vector<Var<float>> Tape<float>::outputs(Var<float>);
template std::vector<Var<double>> Tape<double>::outputs(Var<double>);
template bool Tape<float>::backward_alone(Var<float>);
template bool Tape<double>::backward_alone(Var<double>);
template void Tape<float>::forget_grad(Var<float>);
template void Tape<double>::forget_grad(Var<double>);

}  // namespace xtape
