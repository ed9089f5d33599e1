// SPDX-License-Identifier: Apache-2.0
// The codebooks of the IQ block formats: an entry has the values of 4 or 8 consecutive elements.
#pragma once

#include "lib/tensor/block_grids_packed.h"

namespace dsv4 {

extern const BlockGrid<256, 8> kIq2XxsGrid;  // 8, 25 and 43
extern const BlockGrid<512, 8> kIq2XsGrid;
extern const BlockGrid<1024, 8> kIq2SGrid;
extern const BlockGrid<256, 4> kIq3XxsGrid;  // 4 to 62
extern const BlockGrid<512, 4> kIq3SGrid;    // odd numbers up to 15
extern const BlockGrid<2048, 8> kIq1Grid;    // -1, 0 and 1; of IQ1_S and IQ1_M

}  // namespace dsv4
