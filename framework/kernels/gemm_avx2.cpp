#include <xtape/framework/kernels/gemm_product.hpp>

#ifdef __AVX2__
#include <xtape/framework/kernels/gemm_blocked.hpp>

namespace xtape::kernels {

// Twelve of the sixteen registers hold a tile of C.
void multiply_avx2(const Product<float>& product) { BlockedProduct<float, 32, 6>(product).run(); }
void multiply_avx2(const Product<double>& product) { BlockedProduct<double, 32, 6>(product).run(); }

}  // namespace xtape::kernels
#endif
