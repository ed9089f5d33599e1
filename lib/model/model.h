// SPDX-License-Identifier: Apache-2.0
// The forward pass of a step: a ragged batch of prefill chunks and decode rows of several sequences
// through all layers, the head and the MTP block. It owns the activations; weights, cache and
// kernels belong to the engine. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op/rope.h"
#include "lib/device/device.h"
#include "lib/kv/kv_cache.h"
#include "lib/model/forward_context.h"
#include "lib/model/weights.h"

namespace dsv4 {

class Model {
 public:
  struct Parts {
    const ModelConfig* config = nullptr;
    const Weights* weights = nullptr;
    Dispatch* dispatch = nullptr;
    Device* device = nullptr;
    const KvCache* cache = nullptr;
    bool mtp = false;             // plan for the MTP block; its rows are the cache's last layer
    uint64_t omitted_points = 0;  // see LaunchContext
  };

  // Prepares every operator for the largest step and allocates the activations. Unsupported names
  // the operator and the reason.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const Parts& parts,
                                                       const StepLimits& limits);

  const StepLimits& limits() const { return limits_; }
  int64_t workspace_bytes() const { return memory_.size_bytes(); }

  // Starts a step: sets its rows (their pointers must live until the next Begin) and computes the
  // rope tables. InvalidArgument beyond the limits. `tokens`: [T].
  absl::Status Begin(const StepRows& step, const int32_t* tokens);
  // embedding of the step's tokens -> streams.
  absl::Status Embed();
  // Main layer `layer`: streams -> streams.
  absl::Status RunLayer(int64_t layer);
  // Logits of the rows `row_of` of the step, from the main head: [row_of.size(), vocab].
  absl::StatusOr<const float*> Logits(absl::Span<const int32_t> row_of);
  // The MTP block on the streams of the step, each row given its next token: streams -> streams.
  absl::Status RunMtp(const int32_t* next_tokens);
  absl::StatusOr<const float*> MtpLogits(absl::Span<const int32_t> row_of);

  // Begin, Embed and all layers.
  absl::Status Forward(const StepRows& step, const int32_t* tokens);

  // The residual streams of the step's rows: [T, 4, D], f32 or bf16 (activation_dtype).
  void* streams() { return context_.act.streams; }
  DType activation_dtype() const { return context_.act_dtype(); }
  // Sees values between operators until it is replaced; null = none. For verification.
  void set_tap(const Tap* tap) { context_.tap = tap; }

 private:
  explicit Model(const Parts& parts) : parts_(parts) {}
  absl::Status Plan();
  absl::StatusOr<const float*> HeadLogits(const HyperConnectionWeights& hc, const uint16_t* norm,
                                          absl::Span<const int32_t> row_of);
  int64_t mtp_layer() const { return parts_.config->num_hidden_layers; }

  Parts parts_;
  StepLimits limits_;
  ForwardContext context_;
  RopeFrequencies frequencies_;
  Buffer memory_;
};

}  // namespace dsv4
