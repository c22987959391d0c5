#include <xtape/framework/kernels/axis.hpp>
#include <xtape/framework/ops/indices.hpp>
#include <xtape/framework/ops/ops.hpp>

namespace xtape {

template <class T>
Var<T> embedding(Var<T> weight, Integers tokens, EmbeddingOptions options) {
  Tape<T>& tape = tape_of("embedding", weight);
  tape.check(tokens, "embedding");
  const Shape table = weight.shape();
  require<ShapeError>(table.rank() == 2, "[embedding] weight must be (count, width), got {}", table);
  require<ShapeError>(tokens.shape.rank() < Shape::max_rank, "[embedding] tokens must have rank at most {}, got {}",
                      Shape::max_rank - 1, tokens.shape);
  if (options.padding_index)
    require<ShapeError>(*options.padding_index >= 0 && *options.padding_index < static_cast<std::int64_t>(table[0]),
                        "[embedding] padding_index must be in [0, {}), got {}", table[0], *options.padding_index);
  check_range("embedding", "token", tokens, table[0]);
  Shape shape = tokens.shape;
  shape.push_back(table[1]);
  const std::size_t count = tokens.shape.size();
  const kernels::Around rows = kernels::around(table, 0);
  const std::int64_t* indices = tokens.data;
  const std::int64_t skip = options.padding_index.value_or(-1);
  Var<T> y = tape.output("embedding", shape, weight);
  kernels::index_select_forward(rows, count, indices, weight.data(), y.data());
  tape.on_backward(y, [=] {
    const auto [dw, accumulate] = weight.tape().slot(weight);
    kernels::index_select_backward(rows, count, indices, skip, y.tape().slot(y).data, dw, accumulate);
  });
  return y;
}

template Var<float> embedding(Var<float>, Integers, EmbeddingOptions);
template Var<double> embedding(Var<double>, Integers, EmbeddingOptions);

}  // namespace xtape
