// SPDX-License-Identifier: Apache-2.0
// Tells checkpoints whose tensors have the names of other tools' layouts, so that a refusal can say
// more than which tensor is missing.
#pragma once

#include <string>

#include "lib/io/checkpoint.h"

namespace dsv4 {

// The layout that `checkpoint` is in, with a tensor that shows it: "the FP8 layout of Hugging Face
// (tensor "layers.0.attn.wq_a.weight_scale_inv")". Empty where no name tells.
std::string ForeignLayout(const Checkpoint& checkpoint);

}  // namespace dsv4
