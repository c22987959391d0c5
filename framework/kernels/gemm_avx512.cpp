#include <xtape/framework/kernels/gemm_product.hpp>

#ifdef __AVX512F__
#include <xtape/framework/kernels/gemm_blocked.hpp>

namespace xtape::kernels {

// 28 of the 32 registers hold a tile of C.
void multiply_avx512(const Product<float>& product) { BlockedProduct<float, 64, 14>(product).run(); }
void multiply_avx512(const Product<double>& product) { BlockedProduct<double, 64, 14>(product).run(); }

}  // namespace xtape::kernels
#endif
