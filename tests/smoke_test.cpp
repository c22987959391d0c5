#include "support.hpp"
namespace xtape {
TEST(Smoke, Works) {
  Rng rng(1);
  MultiHeadAttention<double> mha(8, 2, rng);
  EXPECT_TRUE(gradcheck(mha, {{2, 3, 8}})) << gradcheck(mha, {{2, 3, 8}});
  std::cout << gradcheck(mha, {{2, 3, 8}});
  TransformerBlock<double> block(8, 2, rng);
  std::cout << gradcheck(block, {{2, 3, 8}});
  std::cout << describe(block);
}
}
