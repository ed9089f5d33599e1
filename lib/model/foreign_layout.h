// SPDX-License-Identifier: Apache-2.0
// Recognises checkpoints in the layouts of other tools by their tensor names, so that an error can
// name the layout and not only a missing tensor.
#pragma once

#include <string>

#include "lib/io/checkpoint.h"

namespace dsv4 {

// The layout of `checkpoint` and a tensor that identifies it: "the FP8 layout of Hugging Face
// (tensor "layers.0.attn.wq_a.weight_scale_inv")". Empty if no name identifies one.
std::string ForeignLayout(const Checkpoint& checkpoint);

}  // namespace dsv4
