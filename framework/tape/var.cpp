// What a handle asks its tape for.

#include <xtape/framework/tape/var.hpp>

#include <ostream>

#include <xtape/framework/tape/print.hpp>
#include <xtape/framework/tape/tape.hpp>

namespace xtape {

template <class T>
Shape Var<T>::shape() const {
  return tape().node(*this, "shape").shape;
}

template <class T>
bool Var<T>::requires_grad() const {
  return tape().node(*this, "requires_grad").requires_grad;
}

template <class T>
Tape<T>& Var<T>::tape(const char* op) const {
  require<TapeError>(tape_ != nullptr, "[{}] expected a value on a tape, got an empty handle", op);
  return *tape_;
}

template <class T>
const char* Var<T>::op() const {
  return tape().node(*this, "op").op;
}

template <class T>
const char* Var<T>::layer() const {
  return tape().node(*this, "layer").layer;
}

template <class T>
T* Var<T>::data() const {
  return tape().node(*this, "value").value;
}

template <class T>
T Var<T>::item() const {
  require<ShapeError>(size() == 1, "[item] expected a value of size 1, got shape {}", shape());
  return *data();
}

template <class T>
std::string to_string(Var<T> x) {
  return fmt::format("{} {}: {}", x.op(), to_string(x.shape()), array_to_string(x.data(), x.shape()));
}

template <class T>
std::ostream& operator<<(std::ostream& out, Var<T> x) {
  return out << to_string(x);
}

template class Var<float>;
template class Var<double>;
template std::string to_string(Var<float>);
template std::string to_string(Var<double>);
template std::ostream& operator<<(std::ostream&, Var<float>);
template std::ostream& operator<<(std::ostream&, Var<double>);

}  // namespace xtape
