// SPDX-License-Identifier: Apache-2.0
// block_products of formats without codebooks, K-quants aside. Contract, roofline and plan:
// block_products.h and block_products.cuh.
#include "kernels/sm12x/block_products.cuh"

namespace dsv4::sm12x {

template void LaunchBlocksOf<BlockType::kF32>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kF16>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kBf16>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kQ4_0>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kQ4_1>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kQ5_0>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kQ5_1>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kQ8_0>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kMxfp4>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kNvfp4>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kIq4Nl>(const LaunchContext&, const BlockJob&);
template void LaunchBlocksOf<BlockType::kIq4Xs>(const LaunchContext&, const BlockJob&);

}  // namespace dsv4::sm12x
