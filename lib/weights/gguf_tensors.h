// SPDX-License-Identifier: Apache-2.0
// The tensors of GGUF files under the names of DeepSeek's own files, so that one loader reads both:
// names are translated, dimensions reversed, and the experts of a layer become one tensor each. No
// byte of a tensor is changed; none is copied, but for the two projections of an MTP drafter.
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

// The tensors of a drafter's file: those of llama.cpp (an MTP block behind the model's, or the
// stages of a DSpark drafter under the architecture dflash) and of ds4 (mtp.S.*). Other tensors,
// which such files repeat, are left out. `config`: the model's.
absl::StatusOr<std::unique_ptr<Checkpoint>> GgufDrafterCheckpoint(GgufModel model,
                                                                  const ModelConfig& config);

// The checkpoint of a model with the drafter of the folder or GGUF file `path` in place of its own.
// Errors: those of opening it; NotFound if it has no drafter.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenWithDrafter(std::unique_ptr<Checkpoint> model,
                                                            const std::string& path,
                                                            const ModelConfig& config);

// The checkpoint of a model. Errors: those of Checkpoint::Open, or OpenGguf and GgufCheckpoint.
absl::StatusOr<std::unique_ptr<Checkpoint>> OpenWeights(const std::string& path,
                                                        const ModelConfig& config);

// The name of a tensor in a GGUF file, given that in DeepSeek's files: "blk.3.ffn_gate_exps.weight"
// for "layers.3.ffn.experts.7.w1.weight". Unknown names are returned as they are.
std::string GgufNameOf(absl::string_view name);

}  // namespace dsv4
