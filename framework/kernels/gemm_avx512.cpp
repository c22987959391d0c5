#include <xtape/framework/kernels/gemm_product.hpp>

#ifdef __AVX512F__
#include <xtape/framework/kernels/gemm_blocked.hpp>

namespace xtape::kernels {

// 28 of the 32 registers hold a tile of C.
void multiply_avx512(const Product<float>& product) { multiply_blocked<float, 64, 14>(product); }
void multiply_avx512(const Product<double>& product) { multiply_blocked<double, 64, 14>(product); }

}  // namespace xtape::kernels
#endif
