// SPDX-License-Identifier: Apache-2.0
// A checkpoint of random weights, for measurements at a model's sizes without its files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/config/config.h"
#include "lib/io/checkpoint.h"

namespace dsv4 {

struct SyntheticOptions {
  // The types of a GGUF file, by a name of synthetic_mix.h. Empty: those of DeepSeek's own files.
  std::string mix{};
  // Routed experts are NVFP4, with scales that MXFP4 does not have. Without `mix`.
  bool nvfp4_experts = false;
  float skew = 0;
  // A file of any content, at least as large as one matrix. It is the data of the routed experts
  // from `first_in_file` on, which may overlap in it. Empty: none.
  std::string file{};
  int64_t first_in_file = 0;
  // For plans: the file is the data of every tensor. It is at least as large as the largest one.
  bool all_in_file = false;
};

// Every tensor of `config`, with values that keep activations bounded. Tensors of one dtype are
// views of the same memory, so memory is little more than that of the largest one. Gates choose all
// experts about equally often. With `skew`, the expert at place r (1, 2, ..) of a random order of
// each layer has the bias -skew * ln(r), so that few experts are chosen often. Errors: those of
// opening the file and of ApplyMix.
absl::StatusOr<std::unique_ptr<Checkpoint>> SyntheticCheckpoint(
    const ModelConfig& config, const SyntheticOptions& options = {});

}  // namespace dsv4
