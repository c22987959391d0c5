#pragma once
// The matrix product, cut to fit caches and registers (Goto and van de Geijn 2008), for one instruction set; included
// by one file for each. Every element of C is one chain of fused multiply-adds in the order of k, whatever the block
// sizes, the instruction set and the place of its row: equal inputs give equal bits.

#include <xtape/framework/kernels/gemm_product.hpp>
#include <xtape/framework/kernels/gemm_vector.hpp>

namespace xtape::kernels {
namespace {

/// A tile of C, at most two vectors wide, and what its chains start from.
template <class T>
struct Tile {
  T* c;
  std::size_t ldc, columns;
  const T* start;  // null: 0
  std::size_t start_stride;
};

/// Where the tile's rows of op(A) lie: as rows, a[r * step + p], or as columns, a[p * step + r].
enum class Lie { rows, columns };

/// C = start + A B for a tile of `rows` rows and `vectors` vectors of columns, which is held in registers; row p of B
/// is at b + p * b_step.
template <class T, std::size_t bytes, std::size_t rows, std::size_t vectors, Lie lie>
[[gnu::noinline]] void multiply_tile(std::size_t k, const T* a, std::size_t a_step, const T* b, std::size_t b_step,
                                     const Tile<T>& tile) {
  using V = Vector<T, bytes>;
  constexpr std::size_t width = bytes / sizeof(T);
  const auto columns_of = [&](std::size_t v) __attribute__((always_inline)) {
    return v + 1 < vectors ? width : tile.columns - (vectors - 1) * width;
  };
  V c[rows][vectors];
  if (tile.start == nullptr) {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (std::size_t v = 0; v < vectors; ++v) c[r][v] = V{};
  } else {
#pragma GCC unroll 16
    for (std::size_t r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (std::size_t v = 0; v < vectors; ++v)
        c[r][v] = load_up_to<V>(tile.start + r * tile.start_stride + v * width, columns_of(v));
  }
  const auto add_products = [&](auto element) __attribute__((always_inline)) {
    V of_b[vectors];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) of_b[v] = load_whole<V>(b + v * width);
    b += b_step;
#pragma GCC unroll 16
    for (std::size_t r = 0; r < rows; ++r) {
      const V of_a = V{} + element(r);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < vectors; ++v) c[r][v] = fused(of_a, of_b[v], c[r][v]);
    }
  };
  if constexpr (lie == Lie::rows) {
    const T* row[rows];
#pragma GCC unroll 16
    for (std::size_t r = 0; r < rows; ++r) row[r] = a + r * a_step;
    std::size_t p = 0;
    for (; p + 4 <= k; p += 4)
#pragma GCC unroll 4
      for (std::size_t q = 0; q < 4; ++q) add_products([&](std::size_t r) { return row[r][p + q]; });
    for (; p < k; ++p) add_products([&](std::size_t r) { return row[r][p]; });
  } else {
    for (std::size_t p = 0; p < k; ++p, a += a_step) add_products([&](std::size_t r) { return a[r]; });
  }
#pragma GCC unroll 16
  for (std::size_t r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (std::size_t v = 0; v < vectors; ++v) store_up_to(tile.c + r * tile.ldc + v * width, columns_of(v), c[r][v]);
}

/// to[p * width + i] = factor * from[i * ld + p] for i < n and p < k, and 0 for n <= i < width.
template <class T, std::size_t bytes>
void pack_transposed(T factor, const T* from, std::size_t ld, std::size_t n, std::size_t k, T* to, std::size_t width) {
  using V = Vector<T, bytes>;
  constexpr std::size_t lanes = bytes / sizeof(T);
  for (std::size_t i = 0; i < width; i += lanes) {
    const std::size_t filled = i + lanes <= n ? lanes : n - i, written = i + lanes <= width ? lanes : width - i;
    std::size_t p = 0;
    for (; p + lanes <= k; p += lanes) {
      V rows[lanes];
#pragma GCC unroll 16
      for (std::size_t r = 0; r < lanes; ++r)
        rows[r] = r < filled ? factor * load_whole<V>(from + (i + r) * ld + p) : V{};
      transpose_square<T, bytes>(rows);
      T* at = to + p * width + i;
      if (written == lanes) {
#pragma GCC unroll 16
        for (std::size_t r = 0; r < lanes; ++r) store_whole(at + r * width, rows[r]);
      } else {
#pragma GCC unroll 16
        for (std::size_t r = 0; r < lanes; ++r) store_part(at + r * width, written, rows[r]);
      }
    }
    for (; p < k; ++p)
      for (std::size_t r = 0; r < written; ++r)
        to[p * width + i + r] = r < filled ? factor * from[(i + r) * ld + p] : T(0);
  }
}

/// to[p * width + i] = factor * from[p * ld + i] for i < n and p < k, and 0 for n <= i < width.
template <class T, std::size_t bytes>
void pack(T factor, const T* from, std::size_t ld, std::size_t n, std::size_t k, T* to, std::size_t width) {
  using V = Vector<T, bytes>;
  constexpr std::size_t lanes = bytes / sizeof(T);
  for (std::size_t p = 0; p < k; ++p, from += ld, to += width)
    for (std::size_t i = 0; i < width; i += lanes)
      store_up_to(to + i, width - i, factor * load_up_to<V>(from + i, i < n ? n - i : 0));
}

/// The product with vectors of `bytes`, whose tiles have at most `most_rows` rows: as many as registers hold.
template <class T, std::size_t bytes, std::size_t most_rows>
class BlockedProduct {
  static constexpr std::size_t lanes = bytes / sizeof(T), tile_columns = 2 * lanes;
  // A block of B, depth x columns, stays in the second cache; a strip of A in the first.
  static constexpr std::size_t block_depth = 1024 / sizeof(T), block_columns = 2048 / sizeof(T);
  static constexpr std::size_t worth_packing_a = 256;  // columns of a block of B
  static constexpr std::size_t worth_packing_b = 64;   // rows of A
  /// Heights of tiles that there is code for.
  static constexpr std::size_t heights[] = {1, 2, 4, 6, 8, 10, 12, 14};
  static constexpr std::size_t height_count = most_rows / 2 + 1;

  using Multiply = void (*)(std::size_t, const T*, std::size_t, const T*, std::size_t, const Tile<T>&);
  template <std::size_t vectors, Lie lie, std::size_t... i>
  static Multiply select(std::size_t height, std::index_sequence<i...>) {
    static constexpr Multiply of_height[] = {multiply_tile<T, bytes, heights[i], vectors, lie>...};
    return of_height[height];
  }
  static void multiply(std::size_t height, Lie lie, std::size_t k, const T* a, std::size_t a_step, const T* b,
                       std::size_t b_step, const Tile<T>& tile) {
    constexpr auto all = std::make_index_sequence<height_count>();
    const bool narrow = tile.columns <= lanes;
    const Multiply f = lie == Lie::rows
                           ? (narrow ? select<1, Lie::rows>(height, all) : select<2, Lie::rows>(height, all))
                           : (narrow ? select<1, Lie::columns>(height, all) : select<2, Lie::columns>(height, all));
    f(k, a, a_step, b, b_step, tile);
  }

  /// The height, as its place in `heights`, of the next strip of rows: strips are about equally high, and the last ones
  /// make up what is left.
  static std::size_t next_height(std::size_t rows, std::size_t left) {
    const std::size_t strips = (rows + most_rows - 1) / most_rows, even = (rows + strips - 1) / strips;
    std::size_t height = 0;
    while (height + 1 < height_count && heights[height] < even) ++height;
    while (heights[height] > left) --height;
    return height;
  }
  static std::size_t padded(std::size_t columns) { return columns > lanes ? tile_columns : lanes; }

 public:
  static void run(const Product<T>& product) {
    alignas(64) T packed_b[block_depth * block_columns];
    alignas(64) T packed_a[block_depth * most_rows];
    const T *a = product.a, *b = product.b;
    const bool a_lies_across = product.transpose_a == Transpose::yes;
    const bool b_lies_across = product.transpose_b == Transpose::yes;
    for (std::size_t p = 0; p < product.k; p += block_depth) {
      const std::size_t depth = product.k - p < block_depth ? product.k - p : block_depth;
      for (std::size_t first = 0; first < product.n; first += block_columns) {
        const std::size_t columns = product.n - first < block_columns ? product.n - first : block_columns;
        const T* block = b_lies_across ? b + first * product.ldb + p : b + p * product.ldb + first;
        const auto is_packed = [&](std::size_t width) {
          return b_lies_across || product.m >= worth_packing_b || width < padded(width);
        };
        for (std::size_t j = 0; j < columns; j += tile_columns) {
          const std::size_t width = columns - j < tile_columns ? columns - j : tile_columns;
          if (b_lies_across)
            pack_transposed<T, bytes>(1, block + j * product.ldb, product.ldb, width, depth, packed_b + j * depth,
                                      padded(width));
          else if (is_packed(width))
            pack<T, bytes>(1, block + j, product.ldb, width, depth, packed_b + j * depth, padded(width));
        }
        const bool packs_a = product.alpha != T(1) || columns >= worth_packing_a;
        for (std::size_t i = 0; i < product.m;) {
          const std::size_t height = next_height(product.m, product.m - i), rows = heights[height];
          const T* strip = a_lies_across ? a + p * product.lda + i : a + i * product.lda + p;
          if (packs_a && a_lies_across)
            pack<T, bytes>(product.alpha, strip, product.lda, rows, depth, packed_a, rows);
          else if (packs_a)
            pack_transposed<T, bytes>(product.alpha, strip, product.lda, rows, depth, packed_a, rows);
          const Lie lie = packs_a || a_lies_across ? Lie::columns : Lie::rows;
          const T* of_a = packs_a ? packed_a : strip;
          const std::size_t a_step = packs_a ? rows : product.lda;
          for (std::size_t j = 0; j < columns; j += tile_columns) {
            const std::size_t width = columns - j < tile_columns ? columns - j : tile_columns;
            Tile<T> tile{product.c + i * product.ldc + first + j, product.ldc, width, nullptr, 0};
            if (p > 0 || product.add)
              tile.start = tile.c, tile.start_stride = product.ldc;
            else if (product.bias != nullptr)
              tile.start = product.bias + first + j;
            if (is_packed(width))
              multiply(height, lie, depth, of_a, a_step, packed_b + j * depth, padded(width), tile);
            else
              multiply(height, lie, depth, of_a, a_step, block + j, product.ldb, tile);
          }
          i += rows;
        }
      }
    }
  }
};

}  // namespace
}  // namespace xtape::kernels
