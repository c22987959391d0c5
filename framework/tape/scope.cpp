// What outlives a scope of the tape.

#include <algorithm>

#include <xtape/framework/tape/tape.hpp>

namespace xtape {

template <class T>
std::array<Var<T>, 8> Tape<T>::Scope::keep_all(std::initializer_list<Var<T>> ys) {
  std::array<Var<T>, 8> kept;
  std::array<T*, 8> copies{};
  std::array<Node, 8> sources;
  require<TapeError>(ys.size() <= kept.size(), "[scope.keep] at most {} values can be kept, got {}", kept.size(),
                     ys.size());
  require<TapeError>(depth_ == tape_.scope_depth_, "[scope.keep] expected the innermost scope, got one of {} around it",
                     tape_.scope_depth_ - depth_);
  require<TapeError>(clears_ == tape_.clears_,
                     "[scope.keep] expected a scope that is open, got one that clear() ended");
  std::size_t n = 0;
  for (Var<T> y : ys) {
    sources[n] = tape_.node(y, "scope.keep");
    require<TapeError>(
        !sources[n].requires_grad,
        "[scope.keep] expected a value that requires no gradient, got [{}] {}, whose record ends with the "
        "scope; use no_grad() in it",
        sources[n].op, sources[n].shape);
    ++n;
  }
  // Their memory is about to be given back, and may overlap the place that they move to.
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t count = sources[i].shape.size();
    copies[i] = static_cast<T*>(tape_.pool_.allocate(count * sizeof(T)));
    std::copy_n(sources[i].value, count, copies[i]);
  }
  tape_.release(start_);
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t count = sources[i].shape.size();
    T* value = tape_.value_memory(count);
    std::copy_n(copies[i], count, value);
    tape_.pool_.free(copies[i], count * sizeof(T));
    tape_.push("kept", sources[i].shape).value = value;
    kept[i] = tape_.handle(tape_.nodes_.size() - 1);
  }
  start_ = tape_.position();
  return kept;
}

template std::array<Var<float>, 8> Tape<float>::Scope::keep_all(std::initializer_list<Var<float>>);
template std::array<Var<double>, 8> Tape<double>::Scope::keep_all(std::initializer_list<Var<double>>);

}  // namespace xtape
