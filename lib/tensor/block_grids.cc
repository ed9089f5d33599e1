// SPDX-License-Identifier: Apache-2.0
#include "lib/tensor/block_grids.h"

namespace dsv4 {

constinit const BlockGrid<256, 8> kIq2XxsGrid =
    grids::Expand<256, 8>(grids::kIq2XxsPacked, grids::kIq2Levels);
constinit const BlockGrid<512, 8> kIq2XsGrid =
    grids::Expand<512, 8>(grids::kIq2XsPacked, grids::kIq2Levels);
constinit const BlockGrid<1024, 8> kIq2SGrid =
    grids::Expand<1024, 8>(grids::kIq2SPacked, grids::kIq2Levels);
constinit const BlockGrid<256, 4> kIq3XxsGrid =
    grids::Expand<256, 4>(grids::kIq3XxsPacked, grids::kIq3XxsLevels);
constinit const BlockGrid<512, 4> kIq3SGrid =
    grids::Expand<512, 4>(grids::kIq3SPacked, grids::kIq3SLevels);
constinit const BlockGrid<2048, 8> kIq1Grid =
    grids::Expand<2048, 8>(grids::kIq1SPacked, grids::kIq1Levels);

}  // namespace dsv4
