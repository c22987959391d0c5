#include <xtape/framework/kernels/gemm_product.hpp>

#ifdef __AVX2__
#include <xtape/framework/kernels/gemm_blocked.hpp>

namespace xtape::kernels {

// Twelve of the sixteen registers hold a tile of C.
void multiply_avx2(const Product<float>& product) { multiply_blocked<float, 32, 6>(product); }
void multiply_avx2(const Product<double>& product) { multiply_blocked<double, 32, 6>(product); }

}  // namespace xtape::kernels
#endif
