// SPDX-License-Identifier: Apache-2.0
// Checkpoints of safetensors as GGUF files: what llama.cpp's converter makes of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/config/config.h"
#include "tests/support/gguf_image.h"
#include "tests/support/gguf_tensor_bytes.h"

namespace dsv4::test {

// The model in `folder`: experts as MXFP4, what is FP8 as Q8_0, all else with its own values.
// Drafters are left out. The tokenizer's keys are left out but for the number of tokens: a
// tokenizer.json belongs beside the file.
std::string GgufOfCheckpoint(const std::string& folder);

// The keys of `c` with the prefix `architecture`, of `layers` blocks.
void AddGgufKeys(const ModelConfig& c, const std::string& architecture, int64_t layers,
                 const std::vector<int32_t>& ratios, int64_t hash_layers, GgufImage* image);

// As BF16. REQUIRES: it has all of these values.
std::string Bf16Bytes(const std::vector<float>& values);

}  // namespace dsv4::test
