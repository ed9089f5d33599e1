// SPDX-License-Identifier: Apache-2.0
// The tensors of GGUF files under the names of DeepSeek's own files, so that one loader reads both:
// names are translated, dimensions reversed, and the experts of a layer become one tensor each. No
// byte of a tensor is copied or changed.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/config/config.h"
#include "lib/io/checkpoint.h"
#include "lib/io/gguf.h"

namespace dsv4 {

// Errors, naming the tensor: Corrupt for a tensor in two parts, or experts other than
// config.n_routed_experts; Unsupported for NVFP4 with a scale of the tensor. Tensors with unknown
// names keep these and are not used. `config`: of ReadGgufConfig.
absl::StatusOr<std::unique_ptr<Checkpoint>> GgufCheckpoint(GgufModel model,
                                                           const ModelConfig& config);

// The checkpoint of a model. Errors: those of Checkpoint::Open, or OpenGguf and GgufCheckpoint.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenWeights(const std::string& path,
                                                        const ModelConfig& config);

// The name of a tensor in a GGUF file, given that in DeepSeek's files: "blk.3.ffn_gate_exps.weight"
// for "layers.3.ffn.experts.7.w1.weight". Unknown names are returned as they are.
std::string GgufNameOf(absl::string_view name);

}  // namespace dsv4
