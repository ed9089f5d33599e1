// SPDX-License-Identifier: Apache-2.0
// The passes of a model's drafter on a rank, kernel by kernel: single passes, and chains of passes.
// Each pass of a chain uses the tokens that the pass before it chose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/model/draft_blocks.h"
#include "lib/model/running_pass.h"

namespace dsv4 {

// The streams with which a row of an MTP pass begins: those of a row of the last pass, or those
// stored in a state slot.
struct StreamSource {
  static StreamSource OfRow(int32_t row) { return {.row = row, .slot = kNoBlock}; }
  static StreamSource OfSlot(int32_t slot) { return {.row = -1, .slot = slot}; }
  int32_t row, slot;
};

// Passes of a drafter that are launched together. A pass may use tokens that an earlier pass chose.
struct DraftPass {
  StepRows step;
  const int32_t* tokens = nullptr;  // a negative one, -1 - i, stands for the token of list i
  absl::Span<const StreamSource> sources{};
  const LogitRequests* head = nullptr;  // the caller's
};
struct DraftChain {
  absl::Span<const DraftPass> passes{};
  FollowingDrafts following{};  // of the last head, if logits depend on the previous token
};

class DraftPasses {
 public:
  // REQUIRES: pass->parts.drafts.
  explicit DraftPasses(RunningPass* pass);

  DraftBlocks& blocks() { return *blocks_; }
  // Whether a draft of several tokens can be chosen on the device.
  bool chains() const;
  size_t chain_passes() const;  // the most passes of a chain
  // The shape of the first pass of a chain for steps of `shape`, and of pass `pass` of it.
  StepUpload::Shape ChainShape(const StepUpload::Shape& shape) const;
  static StepUpload::Shape ChainShape(const StepUpload::Shape& first, size_t pass);

  // The inputs of a pass. Errors: InvalidArgument beyond the limits.
  absl::StatusOr<PassInputs> Inputs(const StepRows& step, const int32_t* tokens,
                                    absl::Span<const StreamSource> sources);
  // Copies `rows` rows to the drafter's sources, if it has any.
  void SetSources(absl::Span<const StreamSource> sources, int32_t rows, PassInputs* inputs);

  // The running pass, after RunningPass::Set: its first streams, a block, and all of it.
  absl::Status Begin();
  absl::Status RunBlock(int64_t block) { return blocks_->RunBlock(context_, block); }
  absl::Status Run();

  // Sets pass `pass` of a chain, padded to `shape`; of padding alone if the chain has fewer.
  absl::Status SetChainPass(const DraftChain& chain, size_t pass, StepUpload* upload,
                            const StepUpload::Shape& shape);
  absl::Status RunChainPass(size_t pass, int32_t head_rows);
  absl::Status RunChain(const DraftChain& chain);

  // See Model.
  absl::Status Follow(absl::Span<const int32_t> rows, absl::Span<const int32_t> tokens,
                      absl::Span<const LogitQuestion> questions);
  absl::Status ReadHidden(int32_t row, absl::Span<std::byte> to);

 private:
  RunningPass& pass_;
  const ModelParts& parts_;
  const StepLimits& limits_;
  ForwardContext& context_;
  const std::unique_ptr<DraftBlocks> blocks_;
  std::vector<PassInputs> chain_inputs_;  // [chain_passes()]
  FollowingDrafts following_;             // of the chain, the device's
  // [limits.rows]
  std::vector<int64_t> positions_;
  std::vector<const std::byte*> copy_from_;
  std::vector<std::byte*> copy_to_;
};

}  // namespace dsv4
