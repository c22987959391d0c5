#include <xtape/framework/tape/parameter.hpp>

#include <algorithm>
#include <ostream>

#include <xtape/framework/tape/print.hpp>

namespace xtape {

const char* to_string(Role role) {
  switch (role) {
    case Role::weight:
      return "weight";
    case Role::bias:
      return "bias";
    case Role::gain:
      return "gain";
    case Role::embedding:
      return "embedding";
  }
  return "";
}

template <class T>
Parameter<T>::Parameter(Shape shape, Role role) : state_(std::make_shared<State>()) {
  state_->shape = shape;
  state_->role = role;
  state_->value = aligned_bytes(std::max<std::size_t>(shape.size(), 1) * sizeof(T));
  std::fill_n(reinterpret_cast<T*>(state_->value.get()), shape.size(), T(0));
}

template <class T>
T* Parameter<T>::grad_data() {
  const bool fresh = !state_->has_grad;
  T* grad = touch_grad_data();
  if (fresh) std::fill_n(grad, size(), T(0));
  return grad;
}

template <class T>
T* Parameter<T>::touch_grad_data() {
  if (!state_->grad) state_->grad = aligned_bytes(std::max<std::size_t>(size(), 1) * sizeof(T));
  state_->has_grad = true;
  return reinterpret_cast<T*>(state_->grad.get());
}

template <class T>
std::string to_string(const Parameter<T>& parameter) {
  return fmt::format("{} {}: {}", to_string(parameter.role()), to_string(parameter.shape()),
                     array_to_string(parameter.data(), parameter.shape()));
}

template <class T>
std::ostream& operator<<(std::ostream& out, const Parameter<T>& parameter) {
  return out << to_string(parameter);
}

template class Parameter<float>;
template class Parameter<double>;
template std::string to_string(const Parameter<float>&);
template std::string to_string(const Parameter<double>&);
template std::ostream& operator<<(std::ostream&, const Parameter<float>&);
template std::ostream& operator<<(std::ostream&, const Parameter<double>&);

}  // namespace xtape
