// SPDX-License-Identifier: Apache-2.0
// The draft blocks of a checkpoint, a part of its model: their work in passes of the main layers
// and in passes of their own. The runtime chooses the rows of a pass and uses its logits
// (lib/step/drafter.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/base/error.h"
#include "lib/kv/kv_cache.h"
#include "lib/model/forward_context.h"
#include "lib/packing/weight_views.h"

namespace dsv4 {

class DraftBlocks {
 public:
  struct Parts {
    const ModelConfig* config = nullptr;
    const WeightViews* weights = nullptr;   // with a drafter
    absl::Span<const LayerCache> layers{};  // the drafter's
    const Shards* shards = nullptr;
    int rank = 0;
  };
  // Creates the blocks of the weights' drafter.
  static std::unique_ptr<DraftBlocks> Of(const Parts& parts);
  virtual ~DraftBlocks() = default;

  // Bytes of the activations that the drafter does not share with the main layers. Places them at
  // `memory` (64-byte aligned parts) unless it is null.
  virtual int64_t Place(const StepLimits& limits, DType act, std::byte* memory) = 0;

  // The cache position of a row minus its RoPE position.
  virtual int64_t slot_shift() const = 0;
  // [T, 4, D] act: receives the streams with which a pass begins. Null if it begins with tokens.
  virtual std::byte* sources() const { return nullptr; }

  // Called in a pass of the main layers, after each layer and after all of them, to read the
  // streams of all rows of the step from context.act.streams.
  virtual absl::Status AfterLayer(const ForwardContext& context, int64_t layer) {
    static_cast<void>(context), static_cast<void>(layer);
    return absl::OkStatus();
  }
  virtual absl::Status AfterLayers(const ForwardContext& context) {
    static_cast<void>(context);
    return absl::OkStatus();
  }

  // A pass over the step's tokens: Begin computes the streams of the first block, then RunBlock is
  // called for each block, context.act.streams -> context.act.streams.
  virtual int64_t blocks() const = 0;
  virtual absl::Status Begin(const ForwardContext& context) = 0;
  virtual absl::Status RunBlock(const ForwardContext& context, int64_t block) = 0;
  // context.act.streams of `rows` rows, chosen by `row_of` (null: the first rows) -> act.logits, by
  // way of `part`; see dsv4::RunHead.
  virtual absl::Status RunHead(const ForwardContext& context, int32_t rows, const int32_t* row_of,
                               float* part) = 0;

  // For a drafter whose logits depend on the previous token (follows()): adds to rows `row_of`
  // [rows] of the head's last logits the terms of their previous `tokens`. confidences[row] becomes
  // the drafter's confidence in its token, as a logit.
  virtual bool follows() const { return false; }
  virtual absl::Status Follow(const ForwardContext& context, int32_t rows, const int32_t* row_of,
                              const int32_t* tokens, float* confidences) {
    static_cast<void>(context), static_cast<void>(rows), static_cast<void>(row_of);
    static_cast<void>(tokens), static_cast<void>(confidences);
    return Internal("the drafter's logits depend on no token");
  }
  // The input of the head's norm for row `row` of the last RunHead: [D] act. For verification.
  virtual const std::byte* HiddenOf(int32_t row) const {
    static_cast<void>(row);
    return nullptr;
  }
};

// For Of, by kind.
std::unique_ptr<DraftBlocks> MakeMtpBlock(const DraftBlocks::Parts& parts);
std::unique_ptr<DraftBlocks> MakeDsparkStages(const DraftBlocks::Parts& parts);

}  // namespace dsv4
