// SPDX-License-Identifier: Apache-2.0
// block_products of any type: block_products.h. Each type has a kernel of its own, compiled in
// block_products_*.cu.
#include "kernels/sm12x/block_products.h"

#include "kernels/sm12x/block_layout.h"

namespace dsv4::sm12x {

void LaunchBlocks(const LaunchContext& context, BlockType type, const BlockJob& job) {
  ForBlockType(type, [&]<BlockType kType>(TypeTag<kType>) { LaunchBlocksOf<kType>(context, job); });
}

}  // namespace dsv4::sm12x
