#pragma once

#include <algorithm>
#include <vector>

#include <xtape/framework/ops/ops.hpp>
#include <xtape/framework/tape/expr.hpp>

namespace xtape {

/// Keys and values of an attention layer for a batch of sequences that grow, so that each token is projected once. The
/// rows of the batch may hold different numbers of tokens: row b holds its first lengths()[b] ones at the places 0, 1,
/// ... of its memory. Padding is never held, and what is not held is 0.
///
/// It outlives tapes, and holds values without their history: it is for tapes that do not record (Tape::no_grad).
template <class T>
class KeyValueCache {
 public:
  using value_type = T;

  KeyValueCache(std::size_t batch, std::size_t capacity, std::size_t key_width, std::size_t value_width)
      : keys_({batch, capacity, key_width}), values_({batch, capacity, value_width}), lengths_(batch, 0) {
    require<ShapeError>(capacity > 0, "[KeyValueCache] capacity must be at least 1, got 0");
    keys_.freeze(), values_.freeze();
  }

  std::size_t batch() const { return lengths_.size(); }
  std::size_t capacity() const { return keys_.shape()[1]; }
  /// How many tokens each row holds.
  const std::vector<std::size_t>& lengths() const { return lengths_; }
  /// The most that a row holds.
  std::size_t length() const { return lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end()); }

  /// The positions of further tokens (batch, time), counted from the first token of their row. `real` (batch, time) is
  /// false for padding, which may stand on either side, has position 0 and does not count. Throws ShapeError if a row
  /// has no room for its tokens.
  Integers positions(Tape<T>& tape, const Shape& tokens, const Mask& real = {}) const {
    check(tape, tokens, real);
    std::vector<std::int64_t> positions(tokens.size());
    for (std::size_t row = 0, i = 0; row < batch(); ++row) {
      auto next = static_cast<std::int64_t>(lengths_[row]);
      for (; i < (row + 1) * tokens[1]; ++i) positions[i] = is_real(real, i) ? next++ : 0;
    }
    return tape.integers(positions.data(), tokens);
  }

  /// Takes up keys (batch, time, key_width) and values (batch, time, value_width), but no padding, at the end of each
  /// row. Throws before anything is written: ShapeError if shapes do not match or a row overflows, TapeError if the
  /// tape records.
  void append(Var<T> keys, Var<T> values, const Mask& real = {}) {
    Tape<T>& tape = tape_of("KeyValueCache", keys, values);
    const Shape tokens = check_rows("keys", keys, keys_);
    require<ShapeError>(check_rows("values", values, values_) == tokens,
                        "[KeyValueCache] keys and values must be as many, got {} and {}", keys.shape(), values.shape());
    require<TapeError>(!tape.recording(),
                       "[KeyValueCache] keys and values are held without their history, so append them under "
                       "tape.no_grad(), got a tape that records");
    check(tape, tokens, real);
    copy(keys, keys_, real);
    copy(values, values_, real);
    for (std::size_t row = 0; row < batch(); ++row) lengths_[row] += count(row, tokens[1], real);
  }

  /// All places of the cache, (batch, capacity, width), on a tape: its memory itself, so to be used before it changes.
  Var<T> keys(Tape<T>& tape) const { return tape.var(keys_); }
  Var<T> values(Tape<T>& tape) const { return tape.var(values_); }

  /// Forgets all but the first n tokens of each row; shorter rows stay. Throws ShapeError if no row holds n.
  void truncate(std::size_t n) {
    require<ShapeError>(n <= length(), "[KeyValueCache] expected to keep at most the {} tokens held, got {}", length(),
                        n);
    std::vector<std::size_t> lengths = lengths_;
    for (std::size_t& kept : lengths) kept = std::min(kept, n);
    truncate(lengths);
  }
  /// The same with a number for each row.
  void truncate(const std::vector<std::size_t>& lengths) {
    require<ShapeError>(lengths.size() == batch(), "[KeyValueCache] expected {} lengths, one for each row, got {}",
                        batch(), lengths.size());
    for (std::size_t row = 0; row < batch(); ++row)
      require<ShapeError>(lengths[row] <= lengths_[row],
                          "[KeyValueCache] expected to keep at most the {} tokens of row {}, got {}", lengths_[row],
                          row, lengths[row]);
    for (Parameter<T>* memory : {&keys_, &values_}) {
      T* data = memory->write_data();
      const std::size_t width = memory->shape()[2];
      for (std::size_t row = 0; row < batch(); ++row)
        std::fill_n(data + (row * capacity() + lengths[row]) * width, (lengths_[row] - lengths[row]) * width, T(0));
    }
    lengths_ = lengths;
  }
  void reset() { truncate(0); }

 private:
  static bool is_real(const Mask& real, std::size_t i) { return !real || real.data[i] != 0; }
  static std::size_t count(std::size_t row, std::size_t time, const Mask& real) {
    if (!real) return time;
    return static_cast<std::size_t>(std::count(real.data + row * time, real.data + (row + 1) * time, 1));
  }

  void check(Tape<T>& tape, const Shape& tokens, const Mask& real) const {
    require<ShapeError>(tokens.rank() == 2 && tokens[0] == batch(),
                        "[KeyValueCache] tokens must be (batch {}, time), got {}", batch(), tokens);
    if (real) tape.check(real, "KeyValueCache");
    require<ShapeError>(!real || real.shape == tokens, "[KeyValueCache] the mask of tokens must be {}, got {}", tokens,
                        real.shape);
    for (std::size_t row = 0; row < batch(); ++row) {
      const std::size_t more = count(row, tokens[1], real);
      require<ShapeError>(more <= capacity() - lengths_[row],
                          "[KeyValueCache] row {} holds {} of {} tokens and has no room for {} more", row,
                          lengths_[row], capacity(), more);
    }
  }
  /// Throws unless x is (batch, time, width) like the memory; returns (batch, time).
  Shape check_rows(const char* name, Var<T> x, const Parameter<T>& memory) const {
    const Shape shape = x.shape();
    require<ShapeError>(shape.rank() == 3 && shape[0] == batch() && shape[2] == memory.shape()[2],
                        "[KeyValueCache] {} must be (batch {}, time, {}), got {}", name, batch(), memory.shape()[2],
                        shape);
    return {shape[0], shape[1]};
  }
  void copy(Var<T> x, Parameter<T>& memory, const Mask& real) const {
    const std::size_t time = x.shape()[1], width = x.shape()[2];
    const T* from = x.data();
    T* data = memory.write_data();
    for (std::size_t row = 0, i = 0; row < batch(); ++row) {
      T* to = data + (row * capacity() + lengths_[row]) * width;
      for (; i < (row + 1) * time; ++i)
        if (is_real(real, i)) to = std::copy_n(from + i * width, width, to);
    }
  }

  Parameter<T> keys_, values_;  // frozen: arrays that tapes use where they are
  std::vector<std::size_t> lengths_;
};

namespace detail {
/// f(), with the promise that the cache holds what it held before if f throws.
template <class Cache, class F>
auto all_or_nothing(Cache& cache, F f) {
  const std::vector<std::size_t> before = cache.lengths();
  try {
    return f();
  } catch (...) {
    cache.truncate(before);
    throw;
  }
}
}  // namespace detail

/// Attention of new tokens to those that the cache holds and, causally, to each other; the cache takes up their keys
/// and values. Shapes are those of `attention`, where Tk is the cache's length() afterwards and key j of a row is its
/// token of position j; `real` (batch, Tq) is false for padding, whose output is 0. Reads the cache where it is. If it
/// throws, the cache is as before.
template <class T>
Var<T> cached_attention(Var<T> q, Var<T> k, Var<T> v, std::size_t heads, KeyValueCache<T>& cache, const Mask& real = {},
                        Attend<T> attend = {}) {
  Tape<T>& tape = tape_of("cached_attention", q, k, v);
  const Shape shape = q.shape();
  require<ShapeError>(shape.rank() == 3 && k.shape().rank() == 3 && k.shape()[1] == shape[1],
                      "[cached_attention] q and k must be (batch, time, width) for the same tokens, got {} and {}",
                      shape, k.shape());
  require(!attend.places && !attend.keys && !(real && attend.allow_queries),
          "[cached_attention] places, keys and, with a mask of tokens, allow_queries follow from the cache, got them "
          "as options");
  return detail::all_or_nothing(cache, [&] {
    attend.causal = true;
    attend.places = cache.positions(tape, {shape[0], shape[1]}, real);
    if (real) attend.allow_queries = real;
    cache.append(k, v, real);
    attend.keys = std::max<std::size_t>(1, cache.length());
    return attention(q, cache.keys(tape), cache.values(tape), heads, attend);
  });
}

/// The caches of a model's layers, which hold the same tokens.
template <class T>
struct ModelCache {
  using value_type = T;
  std::vector<KeyValueCache<T>> layers;  // at least one

  std::size_t batch() const { return layers.front().batch(); }
  std::size_t capacity() const { return layers.front().capacity(); }
  const std::vector<std::size_t>& lengths() const { return layers.front().lengths(); }
  std::size_t length() const { return layers.front().length(); }
  /// As of a KeyValueCache. Throws Error besides if the layers hold different numbers of tokens.
  Integers positions(Tape<T>& tape, const Shape& tokens, const Mask& real = {}) const {
    for (const auto& layer : layers)
      require(layer.lengths() == lengths(), "[ModelCache] layers must hold the same tokens, got {} and {} in a row",
              length(), layer.length());
    return layers.front().positions(tape, tokens, real);
  }
  void truncate(const auto& lengths) {
    for (auto& layer : layers) layer.truncate(lengths);
  }
  void reset() { truncate(0); }
};

}  // namespace xtape
