#include <xtape/framework/tape/tape.hpp>

#include <algorithm>
#include <atomic>
#include <cstring>

#include <xtape/framework/base/layer_name.hpp>

namespace xtape {
namespace {

/// Stamps for all tapes of the process: a new tape at an old one's address does not honour the old one's handles.
std::uint64_t next_stamp() {
  static std::atomic<std::uint64_t> last{0};
  const std::uint64_t stamp = ++last;
  require<TapeError>(stamp >> detail::Ticket::stamp_bits == 0, "[tape] all 2^{} stamps of this process are used up",
                     detail::Ticket::stamp_bits);
  return stamp;
}

}  // namespace

// ---- handles

template <class T>
void Tape<T>::check_ticket(const void* tape, detail::Ticket ticket, const char* op) const {
  require<TapeError>(tape != nullptr, "[{}] expected a value on a tape, got an empty handle", op);
  require<TapeError>(tape == this, "[{}] all operands must live on one tape, got one from another tape", op);
  require<TapeError>(
      ticket.node < nodes_.size() && nodes_[ticket.node].stamp == ticket.stamp,
      "[{}] expected a live handle, got one whose value is gone: it was made before clear() or in a scope "
      "that has ended",
      op);
}

template <class T>
const typename Tape<T>::Node& Tape<T>::node(Var<T> x, const char* op) const {
  check_ticket(x.tape_, x.ticket_, op);
  return nodes_[x.ticket_.node];
}

// ---- recording

template <class T>
Tape<T>::Tape(std::uint64_t seed) : stamp_(next_stamp()), seed_(seed) {}

template <class T>
typename Tape<T>::Node& Tape<T>::push(const char* op, Shape shape) {
  require<TapeError>(nodes_.size() >> detail::Ticket::node_bits == 0,
                     "[{}] a tape holds at most 2^{} values, call clear() between steps", op,
                     detail::Ticket::node_bits);
  Node& node = nodes_.emplace_back();
  node.op = op;
  node.layer = current_layer();
  node.shape = shape;
  node.stamp = stamp_;
  node.owner = static_cast<std::uint32_t>(nodes_.size() - 1);
  return node;
}

template <class T>
void* Tape<T>::value_bytes(std::size_t bytes) {
  values_.now += align_up(bytes);
  values_.peak = std::max(values_.peak, values_.now);
  return arena_.allocate(bytes);
}

template <class T>
void* Tape<T>::scratch_bytes(std::size_t bytes) {
  saved_.now += align_up(bytes);
  saved_.peak = std::max(saved_.peak, saved_.now);
  return arena_.allocate(bytes);
}

template <class T>
Var<T> Tape<T>::number(T x) {
  T* value = value_memory(1);
  *value = x;
  push("number", {}).value = value;
  return handle(nodes_.size() - 1);
}

template <class T>
Var<T> Tape<T>::var(const Parameter<T>& parameter) {
  Node& node = push("parameter", parameter.shape());
  parameters_.push_back(parameter.share());
  node.value = const_cast<T*>(parameter.data());
  node.parameter = static_cast<std::int32_t>(parameters_.size() - 1);
  node.version = parameter.version();
  node.requires_grad = recording() && !parameter.frozen();
  return handle(nodes_.size() - 1);
}

template <class T>
void Tape<T>::check_closed(const char* op, const Var<T>* inputs, std::size_t count) const {
  if (open_.empty()) return;
  // An op may open its next output beside an open one; anything else means that a callback was forgotten.
  const Node& last = nodes_[open_.back()];
  bool sibling = std::strcmp(last.op, op) == 0 && last.input_count == count;
  for (std::size_t i = 0; sibling && i < count; ++i) sibling = inputs[i].ticket_.node == last.inputs[i];
  require<TapeError>(
      sibling,
      "[{}] its output requires a gradient, so the op must close it with tape.on_backward(y, ...) before "
      "anything else is recorded; got [{}] next",
      last.op, op);
}

template <class T>
Var<T> Tape<T>::output_from(const char* op, Shape shape, const Var<T>* inputs, std::size_t count) {
  bool requires_grad = false;
  for (std::size_t i = 0; i < count; ++i) requires_grad |= node(inputs[i], op).requires_grad;
  requires_grad &= recording();
  check_closed(op, inputs, count);

  auto* numbers = static_cast<std::uint32_t*>(record_memory(count * sizeof(std::uint32_t), alignof(std::uint32_t)));
  for (std::size_t i = 0; i < count; ++i) numbers[i] = static_cast<std::uint32_t>(inputs[i].ticket_.node);
  T* value = value_memory(shape.size());
  Node& node = push(op, shape);
  node.value = value;
  node.inputs = numbers;
  node.input_count = static_cast<std::uint32_t>(count);
  node.requires_grad = requires_grad;
  node.is_output = true;
  if (requires_grad) open_.push_back(node.owner);
  const Var<T> y = handle(nodes_.size() - 1);
  for (std::size_t i = 0; i < observers_.size(); ++i) observers_[i]->opened(y);  // which may bring further observers
  return y;
}

template <class T>
Var<T> Tape<T>::alias(const char* op, Shape shape, Var<T> x) {
  const Node source = node(x, op);
  require<ShapeError>(shape.size() == source.shape.size(),
                      "[{}] expected a shape of {} elements like {}, got {} with {}", op, source.shape.size(),
                      source.shape, shape, shape.size());
  check_closed(op, &x, 1);
  auto* inputs = static_cast<std::uint32_t*>(record_memory(sizeof(std::uint32_t), alignof(std::uint32_t)));
  *inputs = static_cast<std::uint32_t>(x.ticket_.node);
  Node& node = push(op, shape);
  node.value = source.value;
  node.inputs = inputs;
  node.input_count = 1;
  node.owner = source.owner;
  node.requires_grad = source.requires_grad && recording();
  return handle(nodes_.size() - 1);
}

template <class T>
Var<T> Tape<T>::constant_alias(const char* op, Var<T> x) {
  Var<T> y = alias(op, node(x, op).shape, x);
  node(y, op).requires_grad = false;
  return y;
}

template <class T>
bool Tape<T>::check_outputs(std::initializer_list<Var<T>> outputs) {
  bool requires_grad = false;
  for (const Var<T>& y : outputs) {
    const Node& output = node(y, "on_backward");
    require<TapeError>(output.is_output, "[on_backward] expected an output of the op, got [{}]", output.op);
    require<TapeError>(output.callback == nullptr && output.outputs == nullptr,
                       "[on_backward] an output is closed once, got [{}] again", output.op);
    requires_grad |= output.requires_grad;
  }
  return requires_grad;
}

template <class T>
void Tape<T>::close(std::initializer_list<Var<T>> outputs, void* callback, void (*run)(void*)) {
  auto* group =
      static_cast<std::uint32_t*>(record_memory(outputs.size() * sizeof(std::uint32_t), alignof(std::uint32_t)));
  std::transform(outputs.begin(), outputs.end(), group,
                 [](const Var<T>& y) { return static_cast<std::uint32_t>(y.ticket_.node); });
  std::sort(group, group + outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    nodes_[group[i]].outputs = group;
    nodes_[group[i]].output_count = static_cast<std::uint32_t>(outputs.size());
    std::erase(open_, group[i]);
  }
  // Whatever uses any of the outputs was recorded after all of them, so the first one's turn comes late enough.
  nodes_[group[0]].callback = callback;
  nodes_[group[0]].run = run;
  tell_closed(outputs);
}

template <class T>
void Tape<T>::tell_closed(std::initializer_list<Var<T>> outputs) {
  if (observers_.empty() || outputs.size() == 0) return;
  const Var<T> first = *std::min_element(
      outputs.begin(), outputs.end(), [](const Var<T>& a, const Var<T>& b) { return a.ticket_.node < b.ticket_.node; });
  for (std::size_t i = 0; i < observers_.size(); ++i) observers_[i]->closed(first);
}

template <class T>
template <class Element>
ConstantArray<Element> Tape<T>::constant(const char* op, const Shape& shape, Element*& data) {
  data = static_cast<Element*>(value_bytes(shape.size() * sizeof(Element)));
  const Node& node = push(op, shape);
  return {data, shape, this, {node.owner, node.stamp}};
}

template <class T>
Integers Tape<T>::integers(const std::int64_t* numbers, const Shape& shape) {
  std::int64_t* data = nullptr;
  const Integers integers = constant("integers", shape, data);
  std::copy_n(numbers, shape.size(), data);
  return integers;
}

// ---- gradients

template <class T>
T* Tape<T>::gradient(Node& owner, bool& existed) {
  if (owner.parameter >= 0) {
    Parameter<T>& parameter = parameters_[static_cast<std::size_t>(owner.parameter)];
    existed = parameter.has_grad();
    return parameter.touch_grad_data();
  }
  require<TapeError>(
      owner.gradient != Gradient::released,
      "[grad] the gradient of [{}] {} was released once it had been passed on; call tape.retain_grad before "
      "backward to keep it",
      owner.op, owner.shape);
  existed = owner.gradient == Gradient::present;
  if (!existed) owner.grad = static_cast<T*>(pool_.allocate(owner.shape.size() * sizeof(T)));
  owner.gradient = Gradient::present;
  return owner.grad;
}

template <class T>
T* Tape<T>::zeroed_gradient(Node& owner) {
  bool existed = false;
  T* grad = gradient(owner, existed);
  if (!existed) std::fill_n(grad, owner.shape.size(), T(0));
  return grad;
}

template <class T>
void Tape<T>::release_gradient(Node& owner) {
  if (owner.gradient == Gradient::present) pool_.free(owner.grad, owner.shape.size() * sizeof(T));
  owner.grad = nullptr;
  owner.gradient = Gradient::released;
}

template <class T>
typename Tape<T>::Node& Tape<T>::gradient_owner(Var<T> x, const char* op) {
  Node& asked = node(x, op);
  require<TapeError>(asked.requires_grad, "[{}] expected a value that requires a gradient, got [{}] {} that does not",
                     op, asked.op, asked.shape);
  return nodes_[asked.owner];
}

template <class T>
GradientSlot<T> Tape<T>::slot(Var<T> x) {
  bool existed = false;
  T* data = gradient(gradient_owner(x), existed);
  return {data, existed};
}

template <class T>
RandomState Tape<T>::next_random() {
  require<TapeError>(ordinal_ >> detail::Ticket::node_bits == 0, "[tape] at most 2^{} random ops fit into one step",
                     detail::Ticket::node_bits);
  return {seed_, step_, ordinal_++, first_row_};
}

template <class T>
void Tape<T>::retain_grad(Var<T> x) {
  gradient_owner(x, "retain_grad").retained = true;
}

template <class T>
void Tape<T>::backward(Var<T> scalar) {
  const Node& y = node(scalar, "backward");
  require<ShapeError>(y.shape.size() == 1,
                      "[backward] expected a scalar, or the gradient dy as second argument, got [{}] of shape {}", y.op,
                      y.shape);
  begin_backward(scalar);
  *zeroed_gradient(gradient_owner(scalar)) += T(1);
  run_backward(scalar);
}

/// Callbacks read the values of their inputs again, those of frozen parameters included.
template <class T>
void Tape<T>::check_versions(const Node& user) const {
  for (std::size_t i = 0; i < user.input_count; ++i) {
    const Node& used = nodes_[nodes_[user.inputs[i]].owner];
    require<TapeError>(
        used.parameter < 0 || used.version == parameters_[static_cast<std::size_t>(used.parameter)].version(),
        "[backward] a parameter of shape {} was written after [{}] had used it in forward, so gradients would be "
        "wrong; run forward again",
        used.shape, user.op);
  }
}

template <class T>
void Tape<T>::begin_backward(Var<T> y) {
  const Node& last = node(y, "backward");
  require<TapeError>(
      last.requires_grad,
      "[backward] expected a value that depends on something that requires a gradient, got [{}] that does "
      "not (was it made under no_grad?)",
      last.op);
  if (!open_.empty())
    raise<TapeError>(
        "[{}] its output requires a gradient, so the op must close it with tape.on_backward(y, ...); got backward() "
        "next",
        nodes_[open_.back()].op);
  for (std::size_t i = 0; i <= y.ticket_.node; ++i)
    if (nodes_[i].requires_grad) check_versions(nodes_[i]);
  // Gradients of intermediate values start anew, also of those recorded after y: they may be further outputs of the op
  // that made y. Those of inputs and parameters are added to.
  for (Node& node : nodes_)
    if (node.is_output) {
      release_gradient(node);
      node.gradient = Gradient::none;
    }
}

template <class T>
bool Tape<T>::run_callback(std::size_t i) {
  if (nodes_[i].run == nullptr) return false;
  const std::uint32_t *outputs = nodes_[i].outputs, *end = outputs + nodes_[i].output_count;
  if (std::none_of(outputs, end, [&](auto o) { return nodes_[o].gradient == Gradient::present; })) return false;
  for (const auto* o = outputs; o != end; ++o)
    if (nodes_[*o].requires_grad) zeroed_gradient(nodes_[*o]);
  run_observed(i, observers_.size());
  return true;
}

/// The callback, within the observers before the given one: the last to come stands outermost.
template <class T>
void Tape<T>::run_observed(std::size_t i, std::size_t observer) {
  if (observer == 0)
    nodes_[i].run(nodes_[i].callback);
  else
    observers_[observer - 1]->backward(handle(i), [&] { run_observed(i, observer - 1); });
}

template <class T>
void Tape<T>::release_outputs(const Node& first) {
  for (const auto* o = first.outputs; o != first.outputs + first.output_count; ++o)
    if (!nodes_[*o].retained) release_gradient(nodes_[*o]);
}

template <class T>
void Tape<T>::run_backward(Var<T> y) {
  for (std::size_t i = y.ticket_.node + 1; i-- > 0;)
    if (run_callback(i)) release_outputs(nodes_[i]);
}

// ---- the life of a record

template <class T>
void Tape<T>::release(const Position& position) {
  for (std::size_t i = position.nodes; i < nodes_.size(); ++i)
    if (nodes_[i].gradient == Gradient::present) release_gradient(nodes_[i]);
  std::erase_if(open_, [&](std::uint32_t node) { return node >= position.nodes; });
  nodes_.resize(position.nodes);
  parameters_.erase(parameters_.begin() + static_cast<std::ptrdiff_t>(position.parameters), parameters_.end());
  values_.now = position.values;
  saved_.now = position.saved;
  arena_.release(position.arena);
  stamp_ = next_stamp();
}

template <class T>
void Tape<T>::clear() {
  release({});
  arena_.clear();
  pool_.clear();
  ++clears_;
  ++step_;
  first_row_ = 0;
  ordinal_ = 0;
}

template <class T>
MemoryUse Tape<T>::memory() const {
  const std::size_t node_bytes = nodes_.capacity() * sizeof(Node) + parameters_.capacity() * sizeof(Parameter<T>) +
                                 open_.capacity() * sizeof(std::uint32_t);
  const std::size_t callbacks = arena_.used() - std::min(arena_.used(), values_.now + saved_.now);
  const std::size_t callbacks_peak = arena_.peak() - std::min(arena_.peak(), values_.peak + saved_.peak);
  return {values_,
          saved_,
          {nodes_.size() * sizeof(Node) + callbacks, node_bytes + callbacks_peak},
          {pool_.used(), pool_.peak()},
          arena_.reserved() + pool_.reserved() + node_bytes};
}

template class Tape<float>;
template class Tape<double>;
template Mask Tape<float>::constant(const char*, const Shape&, std::uint8_t*&);
template Mask Tape<double>::constant(const char*, const Shape&, std::uint8_t*&);
template Integers Tape<float>::constant(const char*, const Shape&, std::int64_t*&);
template Integers Tape<double>::constant(const char*, const Shape&, std::int64_t*&);

}  // namespace xtape
