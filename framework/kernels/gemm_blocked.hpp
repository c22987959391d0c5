#pragma once
// The matrix product, cut to fit caches and registers (Goto and van de Geijn 2008), for one instruction set; included
// by one file for each. Every element of C is one chain of fused multiply-adds in the order of k, whatever the block
// sizes, the instruction set and the place of its row: equal inputs give equal bits.

#include <xtape/framework/kernels/gemm_product.hpp>
#include <xtape/framework/kernels/gemm_vector.hpp>

#ifdef __AVX2__
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

/// How the tile's rows of op(A) are stored: as rows, a[r * step + p], or as columns, a[p * step + r].
enum class Layout { rows, columns };

/// C = start + A B for a tile of `rows` rows and `vectors` vectors of columns, which is held in registers; row p of B
/// is at b + p * b_step.
template <class T, std::size_t bytes, std::size_t rows, std::size_t vectors, Layout layout>
[[gnu::noinline]] void micro_kernel(std::size_t k, const T* a, std::size_t a_step, const T* b, std::size_t b_step,
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
      const V of_a = element(r) - V{};  // in every lane, -0 too
#pragma GCC unroll 2
      for (std::size_t v = 0; v < vectors; ++v) c[r][v] = fma(of_a, of_b[v], c[r][v]);
    }
  };
  if constexpr (layout == Layout::rows) {
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

/// to[p * width + i] = factor * from[p * ld + i] for i < width and p < k, by whole vectors: what they hold beyond i is
/// overwritten by the next p, and that of the last p lies behind the rest.
template <class T, std::size_t bytes>
void pack_by_whole_vectors(T factor, const T* from, std::size_t ld, std::size_t k, T* to, std::size_t width) {
  using V = Vector<T, bytes>;
  for (std::size_t p = 0; p < k; ++p, from += ld, to += width)
    for (std::size_t i = 0; i < width; i += bytes / sizeof(T)) store_whole(to + i, factor * load_whole<V>(from + i));
}

/// One row of A and a transposed B, whose rows are read once: no work is done on them twice, so packing would not pay.
template <class T, std::size_t bytes>
[[gnu::noinline]] void multiply_row(const Product<T>& product) {
  using V = Vector<T, bytes>;
  constexpr std::size_t lanes = bytes / sizeof(T);
  const std::size_t a_step = product.transpose_a == Transpose::yes ? product.lda : 1;
  const auto of_a = [&](std::size_t p) { return product.alpha * product.a[p * a_step] - V{}; };
  for (std::size_t j = 0; j < product.n; j += lanes) {
    const std::size_t columns = product.n - j < lanes ? product.n - j : lanes;
    const T *b = product.b + j * product.ldb, *start = product.add ? product.c : product.bias;
    V c = start == nullptr ? V{} : load_up_to<V>(start + j, columns);
    std::size_t p = 0;
    for (; p + lanes <= product.k; p += lanes) {
      V square[lanes];
#pragma GCC unroll 16
      for (std::size_t r = 0; r < lanes; ++r) square[r] = r < columns ? load_whole<V>(b + r * product.ldb + p) : V{};
      transpose_square<T, bytes>(square);
#pragma GCC unroll 16
      for (std::size_t q = 0; q < lanes; ++q) c = fma(of_a(p + q), square[q], c);
    }
    for (; p < product.k; ++p) {
      V column{};
      for (std::size_t r = 0; r < columns; ++r) column[r] = b[r * product.ldb + p];
      c = fma(of_a(p), column, c);
    }
    store_up_to(product.c + j, columns, c);
  }
}

/// The product with vectors of `bytes`, whose tiles have at most `most_rows` rows: as many as registers hold.
template <class T, std::size_t bytes, std::size_t most_rows>
class BlockedProduct {
 public:
  explicit BlockedProduct(const Product<T>& product)
      : product_(product),
        a_transposed_(product.transpose_a == Transpose::yes),
        b_transposed_(product.transpose_b == Transpose::yes) {}

  void run() {
    for (std::size_t p = 0; p < product_.k; p += block_depth)
      for (std::size_t first = 0; first < product_.n; first += block_columns) {
        const Block block{p, least(block_depth, product_.k - p), first, least(block_columns, product_.n - first)};
        pack_columns(block);
        for (std::size_t i = 0; i < product_.m;) {
          const std::size_t height = next_height(product_.m - i), rows = heights[height];
          const Source strip = strip_of_a(block, i, rows);
          for (std::size_t j = 0; j < block.columns; j += tile_columns) multiply(height, strip, block, i, j);
          i += rows;
        }
      }
  }

 private:
  static constexpr std::size_t lanes = bytes / sizeof(T), tile_columns = 2 * lanes;
  // A block of B, depth x columns, takes half of the second cache of processors with such vectors, 256 or 512 KiB in
  // float, and a quarter in double. A strip of A stays in the first.
  static constexpr std::size_t block_depth = 1024 / sizeof(T), block_columns = 32 * bytes / sizeof(T);
  static constexpr std::size_t worth_packing_a = 256;  // columns of a block of B
  static constexpr std::size_t worth_packing_b = 64;   // rows of A
  /// Heights of tiles that there is a kernel for.
  static constexpr std::size_t heights[] = {1, 2, 4, 6, 8, 10, 12, 14};
  static constexpr std::size_t height_count = most_rows / 2 + 1;

  /// A block of B: rows p to p + depth, columns first to first + columns.
  struct Block {
    std::size_t p, depth, first, columns;
  };
  /// Where something of A or B is read.
  struct Source {
    const T* data;
    std::size_t step;
    Layout layout;
  };

  static constexpr std::size_t least(std::size_t x, std::size_t y) { return x < y ? x : y; }
  static constexpr std::size_t padded(std::size_t columns) { return columns > lanes ? tile_columns : lanes; }

  /// The height, as its place in `heights`, of the next strip of rows: strips are about equally high, and the last ones
  /// make up what is left.
  std::size_t next_height(std::size_t left) const {
    const std::size_t strips = (product_.m + most_rows - 1) / most_rows, even = (product_.m + strips - 1) / strips;
    std::size_t height = 0;
    while (height + 1 < height_count && heights[height] < even) ++height;
    while (heights[height] > left) --height;
    return height;
  }

  /// Columns of B are read where they lie if that pays and they fill their vectors.
  bool is_packed(std::size_t columns) const {
    return b_transposed_ || product_.m >= worth_packing_b || columns < padded(columns);
  }
  const T* of_b(const Block& block, std::size_t j) const {
    return b_transposed_ ? product_.b + (block.first + j) * product_.ldb + block.p
                         : product_.b + block.p * product_.ldb + block.first + j;
  }
  void pack_columns(const Block& block) {
    for (std::size_t j = 0; j < block.columns; j += tile_columns) {
      const std::size_t columns = least(tile_columns, block.columns - j);
      if (!is_packed(columns)) continue;
      const auto pack_b = b_transposed_ ? pack_transposed<T, bytes> : pack<T, bytes>;
      pack_b(T(1), of_b(block, j), product_.ldb, columns, block.depth, packed_b_ + j * block.depth, padded(columns));
    }
  }
  Source strip_of_a(const Block& block, std::size_t i, std::size_t rows) {
    const T* a = a_transposed_ ? product_.a + block.p * product_.lda + i : product_.a + i * product_.lda + block.p;
    if (product_.alpha == T(1) && block.columns < least(worth_packing_a, block_columns))
      return {a, product_.lda, a_transposed_ ? Layout::columns : Layout::rows};
    if (!a_transposed_)
      pack_transposed<T, bytes>(product_.alpha, a, product_.lda, rows, block.depth, packed_a_, rows);
    else if ((rows + lanes - 1) / lanes * lanes <= product_.m - i)
      pack_by_whole_vectors<T, bytes>(product_.alpha, a, product_.lda, block.depth, packed_a_, rows);
    else
      pack<T, bytes>(product_.alpha, a, product_.lda, rows, block.depth, packed_a_, rows);
    return {packed_a_, rows, Layout::columns};
  }

  void multiply(std::size_t height, const Source& strip, const Block& block, std::size_t i, std::size_t j) const {
    const std::size_t columns = least(tile_columns, block.columns - j);
    Tile<T> tile{product_.c + i * product_.ldc + block.first + j, product_.ldc, columns, nullptr, 0};
    if (block.p > 0 || product_.add)
      tile.start = tile.c, tile.start_stride = product_.ldc;
    else if (product_.bias != nullptr)
      tile.start = product_.bias + block.first + j;
    const bool packed = is_packed(columns);
    const T* b = packed ? packed_b_ + j * block.depth : of_b(block, j);
    kernel_for(height, columns, strip.layout)(block.depth, strip.data, strip.step, b,
                                              packed ? padded(columns) : product_.ldb, tile);
  }

  using Kernel = void (*)(std::size_t, const T*, std::size_t, const T*, std::size_t, const Tile<T>&);
  template <std::size_t vectors, Layout layout, std::size_t... i>
  static Kernel kernel_of_height(std::size_t height, std::index_sequence<i...>) {
    static constexpr Kernel kernels[] = {micro_kernel<T, bytes, heights[i], vectors, layout>...};
    return kernels[height];
  }
  static Kernel kernel_for(std::size_t height, std::size_t columns, Layout layout) {
    constexpr auto all = std::make_index_sequence<height_count>();
    if (layout == Layout::rows)
      return columns > lanes ? kernel_of_height<2, Layout::rows>(height, all)
                             : kernel_of_height<1, Layout::rows>(height, all);
    return columns > lanes ? kernel_of_height<2, Layout::columns>(height, all)
                           : kernel_of_height<1, Layout::columns>(height, all);
  }

  const Product<T>& product_;
  bool a_transposed_, b_transposed_;
  alignas(64) T packed_b_[block_depth * block_columns];
  alignas(64) T packed_a_[block_depth * most_rows + lanes];
};

template <class T, std::size_t bytes, std::size_t most_rows>
void multiply_blocked(const Product<T>& product) {
  if (product.m == 1 && product.transpose_b == Transpose::yes)
    multiply_row<T, bytes>(product);
  else
    BlockedProduct<T, bytes, most_rows>(product).run();
}

}  // namespace
}  // namespace xtape::kernels
#endif
