// SPDX-License-Identifier: Apache-2.0
// block_products of K-quants. Contract, roofline and plan: block_products.h and
// block_products.cuh.
#include "kernels/sm12x/block_products.cuh"

namespace dsv4::sm12x {

template void LaunchBlocksOf<BlockType::kQ2K>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kQ3K>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kQ4K>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kQ5K>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kQ6K>(const LaunchContext&, const BlockJob&);

}  // namespace dsv4::sm12x
