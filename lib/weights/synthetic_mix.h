// SPDX-License-Identifier: Apache-2.0
// The types that public GGUF files of DeepSeek V4 Flash give their tensors, so that random weights
// can have the bytes of such a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/io/safetensors.h"
#include "lib/tensor/block_format.h"

namespace dsv4 {

// Names of the mixes: "ds4-q2" (antirez/ds4's file of 2 bits), "ud-iq2_xxs", "ud-q2_k_xl" and
// "ud-iq3_xxs" (Unsloth's).
std::vector<absl::string_view> MixNames();

// Another mix, for tests of devices: each matrix has the next of all types that its width allows,
// the experts of a layer one type a matrix.
inline constexpr char kEveryType[] = "every-type";

// Changes the tensors of Weights::TensorsOf into those of a file of the mix: types and bytes, and
// no scales. Drafters are not in such files and go. InvalidArgument: another name.
absl::Status ApplyMix(absl::string_view name, std::vector<TensorEntry>* tensors);

// Valid blocks of random codes, with values between 2^-11 and 2^-2 (root mean square).
std::vector<uint8_t> RandomBlocks(BlockType type, int64_t bytes);

}  // namespace dsv4
