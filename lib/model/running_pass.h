// SPDX-License-Identifier: Apache-2.0
// The pass that runs on a rank: what it is computed with, its rows and inputs, and the logits of
// the last head. Main passes, those of a drafter and recorded ones share it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op/dense.h"
#include "kernels/op/rope.h"
#include "kernels/op/token_candidates.h"
#include "lib/device/device.h"
#include "lib/kv/kv_cache.h"
#include "lib/model/forward_context.h"
#include "lib/model/logit_rows.h"
#include "lib/model/step_upload.h"
#include "lib/model/token_masks.h"
#include "lib/weights/weights.h"

namespace dsv4 {

// What a rank computes passes with.
struct ModelParts {
  const ModelConfig* config = nullptr;
  const WeightViews* weights = nullptr;
  ExpertStore* experts = nullptr;  // the rank's; planning asks for its plan alone
  Dispatch* dispatch = nullptr;
  Device* device = nullptr;
  absl::Span<const LayerCache> layers{};  // of the cache; without memory when planning
  StatePool streams{};                    // of the cache
  bool drafts = false;  // plan for the drafter of the weights; it has the cache's last layers
  uint64_t omitted_points = 0;  // LaunchContext::omitted_points
  bool graphs = true;           // record steps of few rows, if the device can
  // Mask of the tokens that questions without a mask allow; empty: all. Read once.
  absl::Span<const uint32_t> with_text{};
  const Shards* shards = nullptr;
  int rank = 0;
  Communicator* communicator = nullptr;  // with several ranks; null when planning
};

// The main layers with their head, or the drafter's blocks with theirs.
enum class PassKind { kMain, kDraft };

struct RunningPass {
  RunningPass(const ModelParts& from, const StepLimits& most);

  // Bytes of the inputs of passes that are not recorded; places them at `memory` unless it is null.
  absl::StatusOr<int64_t> PlaceInputs(std::byte* memory);
  // Begins a pass of these rows, padded to `shape`. `following`, `first`: as in StepUpload::Pass.
  absl::Status Set(StepUpload* to, const StepUpload::Shape& shape, const LogitRequests& head,
                   PassInputs from, FollowingDrafts* following = nullptr, bool first = true);
  // Begins a pass without padding or head.
  absl::Status Set(const PassInputs& from);
  absl::Status ComputeRope();
  absl::Status ExpectHead(const LogitRequests& head) const;
  // The answers to the questions about `rows` rows of the last head.
  TokenCandidatesParams Candidates(int32_t rows);
  // The logits part of the next head: no two heads after one another use the same one.
  float* NextLogitsPart() { return context.act.logits_part[++heads % 2]; }
  // The residual streams of a row: [4, D] act.
  const std::byte* StreamsOfRow(int32_t row) const {
    return static_cast<const std::byte*>(context.act.streams) + row * streams_row_bytes();
  }
  int64_t streams_row_bytes() const {
    return kStreams * parts.config->hidden_size * DTypeBytes(context.act_dtype());
  }
  CopyRowsParams CopyParams(int32_t rows, const std::byte* const* from,
                            std::byte* const* to) const {
    return {.rows = rows, .row_bytes = streams_row_bytes(), .from = from, .to = to};
  }
  // Waits for the outstanding exchanges of the device.
  absl::Status AwaitExchanges() const {
    return parts.communicator == nullptr ? absl::OkStatus() : parts.communicator->Synchronize();
  }

  const ModelParts parts;
  const StepLimits limits;
  RopeFrequencies frequencies;
  ForwardContext context;
  TokenMasks masks;
  StepUpload upload;
  int32_t* chosen = nullptr;  // [R] the device's: tokens of lists, for chains of drafts
  PassInputs inputs;          // of the running pass, the device's
  int heads = 0;              // launched for it after it
  LogitRows logits;
};

}  // namespace dsv4
