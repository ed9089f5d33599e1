// SPDX-License-Identifier: Apache-2.0
// block_products of formats with codebooks. Contract, roofline and plan: block_products.h and
// block_products.cuh.
#include "kernels/sm12x/block_products.cuh"

namespace dsv4::sm12x {

template void LaunchBlocksOf<BlockType::kIq2Xxs>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kIq2Xs>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kIq2S>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kIq3Xxs>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kIq3S>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kIq1S>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kIq1M>(const LaunchContext&, const BlockJob&);

}  // namespace dsv4::sm12x
