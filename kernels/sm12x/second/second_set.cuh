// SPDX-License-Identifier: Apache-2.0
// Begins each file of the second set of kernels: the sources that contain the block-scaled MMA, or
// the order of weights that it needs, compiled once more with its portable twin. A GPU of SM12x
// that fails its known answers with the first set runs these (lib/proof/device_proof.h).
//
// What the files define has other names here. What does not depend on the MMA and is defined in
// other files, the products of block formats, is shared with the first set.
#pragma once

#ifndef DSV4_PORTABLE_MMA
#define DSV4_PORTABLE_MMA
#endif
#define DSV4_SM12X_SET "sm12x_second"

#include "kernels/sm12x/block_products.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"

namespace dsv4::sm12x_second {
using namespace sm12x;  // NOLINT: hidden by the names that the set defines itself
}

#define sm12x sm12x_second
#define kSm12xPackWeight kSm12xSecondPackWeight
#define kSm12xLinearFp8 kSm12xSecondLinearFp8
#define kSm12xExpertFfn kSm12xSecondExpertFfn
