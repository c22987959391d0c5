#include <xtape/framework/kernels/cross_entropy.hpp>
#include <xtape/framework/ops/indices.hpp>
#include <xtape/framework/ops/ops.hpp>

#include <algorithm>

namespace xtape {

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
  const std::size_t rows = shape.rows(), classes = shape.back();
  const std::int64_t *target = targets.data, ignore = options.ignore_index;
  const double smoothing = options.label_smoothing;
  const auto counted = rows - static_cast<std::size_t>(std::count(target, target + rows, ignore));
  const double scale = options.reduction == Reduction::sum || counted == 0 ? 1 : 1 / static_cast<double>(counted);

  Var<T> y = tape.output("cross_entropy", {}, logits);
  using Row = kernels::CrossEntropyRow<T>;
  auto* saved = static_cast<Row*>(tape.scratch_bytes(rows * sizeof(Row)));
  auto* losses = static_cast<double*>(tape.scratch_bytes(rows * sizeof(double)));
  kernels::cross_entropy_forward(rows, classes, logits.data(), target, ignore, smoothing, losses, saved);
  double total = 0;
  for (std::size_t row = 0; row < rows; ++row) total += losses[row];
  *y.data() = static_cast<T>(total * scale);
  tape.on_backward(y, [=] {
    const T dy = *y.tape().slot(y).data;
    const auto [dx, accumulate] = logits.tape().slot(logits);
    kernels::cross_entropy_backward(rows, classes, logits.data(), target, ignore, smoothing, saved,
                                    static_cast<T>(static_cast<double>(dy) * scale), dx, accumulate);
  });
  return y;
}

template Var<float> cross_entropy(Var<float>, Integers, CrossEntropyOptions);
template Var<double> cross_entropy(Var<double>, Integers, CrossEntropyOptions);

}  // namespace xtape
