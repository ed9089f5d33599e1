// SPDX-License-Identifier: Apache-2.0
// The tensors of a checkpoint of safetensors as GGUF files have them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/io/checkpoint.h"

namespace dsv4::test {

// Names in checkpoints, and in GGUF files, of the tensors outside of blocks.
const std::map<std::string, std::string>& GgufTopNames();
// Those of a block's tensors, behind "layers.N." and "blk.N.".
const std::map<std::string, std::string>& GgufBlockNames();
// The same of the experts' matrices: "w1" and "ffn_gate_exps".
const std::map<std::string, std::string>& GgufExpertNames();

// The values of a matrix of F32, BF16, FP8 or MXFP4.
std::vector<float> ValuesOf(const Checkpoint& checkpoint, const std::string& name);

// The bytes of the tensor with this GGUF name and type, with the values of the checkpoint: F16,
// BF16 and Q8_0 rounded as ggml rounds them; MXFP4 of MXFP4 and I32 of I64 only. nullopt if
// `checkpoint` has no such tensor, or the type is another one.
std::optional<std::string> GgufTensorBytes(const Checkpoint& checkpoint, absl::string_view name,
                                           uint32_t type);

}  // namespace dsv4::test
