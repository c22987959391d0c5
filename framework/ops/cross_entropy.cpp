#include <xtape/framework/kernels/cross_entropy.hpp>
#include <xtape/framework/ops/indices.hpp>
#include <xtape/framework/ops/ops.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace xtape {
namespace {

/// The class weights in the tape's memory, or null if there are none.
template <class T>
const T* class_weights(Tape<T>& tape, std::span<const double> weights, std::size_t classes) {
  if (weights.empty()) return nullptr;
  require<ShapeError>(weights.size() == classes, "[cross_entropy] class_weights must be ({},), got ({},)", classes,
                      weights.size());
  T* kept = tape.scratch(classes);
  for (std::size_t c = 0; c < classes; ++c) {
    require(weights[c] >= 0 && std::isfinite(weights[c]),
            "[cross_entropy] class_weights must be finite and not negative, got {} for class {}", weights[c], c);
    kept[c] = static_cast<T>(weights[c]);
  }
  return kept;
}

/// What a mean divides by: the weights of the targets that count; 1 if none does.
template <class T>
double counted_weight(const kernels::CrossEntropy<T>& c) {
  double total = 0;
  for (std::size_t row = 0; row < c.rows; ++row)
    if (c.targets[row] != c.ignore) total += c.weight(static_cast<std::size_t>(c.targets[row]));
  return total == 0 ? 1 : total;
}

}  // namespace

template <class T>
Var<T> cross_entropy(Var<T> logits, Integers targets, CrossEntropyOptions options) {
  Tape<T>& tape = tape_of("cross_entropy", logits);
  tape.check(targets, "cross_entropy");
  const Shape shape = logits.shape();
  require<ShapeError>(shape.rank() > 0 && targets.shape == Shape(shape.begin(), shape.end() - 1),
                      "[cross_entropy] targets must be (...) and logits (..., classes), got {} and {}", targets.shape,
                      shape);
  require(options.label_smoothing >= 0 && options.label_smoothing <= 1,
          "[cross_entropy] label_smoothing must be in [0, 1], got {}", options.label_smoothing);
  check_range("cross_entropy", "target", targets, shape.back(), &options.ignore_index);
  const kernels::CrossEntropy<T> c{shape.rows(),
                                   shape.back(),
                                   targets.data,
                                   options.ignore_index,
                                   options.label_smoothing,
                                   class_weights(tape, options.class_weights, shape.back())};
  const bool each_row = options.reduction == Reduction::none;
  const double scale = options.reduction == Reduction::mean ? 1 / counted_weight(c) : 1;

  Var<T> y = tape.output("cross_entropy", each_row ? targets.shape : Shape(), logits);
  using Row = kernels::CrossEntropyRow<T>;
  auto* saved = static_cast<Row*>(tape.scratch_bytes(c.rows * sizeof(Row)));
  auto* losses = static_cast<double*>(tape.scratch_bytes(c.rows * sizeof(double)));
  kernels::cross_entropy_forward(c, logits.data(), losses, saved);
  if (each_row)
    std::transform(losses, losses + c.rows, y.data(), [](double loss) { return static_cast<T>(loss); });
  else
    *y.data() = static_cast<T>(std::accumulate(losses, losses + c.rows, 0.0) * scale);
  tape.on_backward(y, [=] {
    const auto [dx, accumulate] = logits.tape().slot(logits);
    kernels::cross_entropy_backward(c, logits.data(), saved, y.tape().slot(y).data, each_row, scale, dx, accumulate);
  });
  return y;
}

template Var<float> cross_entropy(Var<float>, Integers, CrossEntropyOptions);
template Var<double> cross_entropy(Var<double>, Integers, CrossEntropyOptions);

}  // namespace xtape
