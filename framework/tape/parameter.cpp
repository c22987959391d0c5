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
  const std::size_t bytes = std::max<std::size_t>(shape.size(), 1) * sizeof(T);
  state_->shape = shape;
  state_->role = role;
  state_->value = aligned_bytes(bytes);
  state_->grad = aligned_bytes(bytes);
  std::fill_n(reinterpret_cast<T*>(state_->value.get()), shape.size(), T(0));
}

template <class T>
T* Parameter<T>::grad_data() {
  T* grad = reinterpret_cast<T*>(state_->grad.get());
  if (!state_->has_grad) std::fill_n(grad, size(), T(0));
  state_->has_grad = true;
  return grad;
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
