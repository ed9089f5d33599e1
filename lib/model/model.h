// SPDX-License-Identifier: Apache-2.0
// The forward pass of a step: a ragged batch of prefill chunks and decode rows of several sequences
// through all layers, the head and the drafter's blocks. Owns the activations; weights, cache and
// kernels belong to the engine. Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/dist/status_exchange.h"
#include "lib/model/draft_passes.h"
#include "lib/model/logit_rows.h"
#include "lib/model/recorded_passes.h"
#include "lib/model/running_pass.h"

namespace dsv4 {

class Model {
 public:
  using Parts = ModelParts;

  // Prepares every operator for the largest step and allocates the activations. Errors:
  // Unsupported, naming the operator and the reason. The objects in `parts` must outlive the model.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const Parts& parts,
                                                       const StepLimits& limits);
  // The workspace_bytes() of a model that Create makes, with the errors of Create. Allocates
  // nothing on the device and reads no weight.
  static absl::StatusOr<int64_t> PlanBytes(const Parts& parts, const StepLimits& limits);

  const StepLimits& limits() const { return pass_.limits; }
  int64_t workspace_bytes() const { return memory_.size_bytes(); }

  // Starts a step: sets its rows and computes the RoPE tables. The pointers in `step` must be valid
  // until the next step. `tokens`: [T]. Errors: InvalidArgument beyond the limits.
  absl::Status Begin(const StepRows& step, const int32_t* tokens);
  // Embedding of the step's tokens -> streams.
  absl::Status Embed();
  // Main layer `layer`: streams -> streams.
  absl::Status RunLayer(int64_t layer);
  // DraftBlocks::AfterLayer and AfterLayers.
  absl::Status TapLayer(int64_t layer);
  // Logits of the rows `row_of` of the step, from the main head: [row_of.size(), vocab] in host
  // memory.
  absl::StatusOr<const float*> Logits(absl::Span<const int32_t> row_of);
  // The logits of the last launched head.
  LogitRows& logits() { return pass_.logits; }

  // Begin, Embed and all layers, then the main head for the rows of `head`, if any. After
  // Synchronize logits() has the answers to its questions. `stop`, if any, is called before each
  // layer; if it returns true, the step ends with Cancelled, and the cache rows that it wrote are
  // undefined.
  absl::Status Forward(const StepRows& step, const int32_t* tokens,
                       const std::function<bool()>* stop = nullptr, const LogitRequests& head = {});

  // The residual streams X of row `row` of the last Forward or ForwardDraft: [4, D] act. Valid
  // until the next pass.
  const std::byte* StreamsOfRow(int32_t row) const { return pass_.StreamsOfRow(row); }
  int64_t streams_row_bytes() const { return pass_.streams_row_bytes(); }
  // Copies X of some rows to state slots. Errors: InvalidArgument beyond the step's rows.
  absl::Status StoreStreams(absl::Span<const int32_t> rows, absl::Span<const int32_t> slots);

  // A pass of the drafter's blocks.
  // - step.positions: the cache positions of its rows.
  // - `sources`: sources[r] names the X with which row r begins, of the last pass or of
  //   StoreStreams.
  //   Empty for drafters that begin with tokens.
  // - `head`: rows and questions of the drafter's head, as in Forward.
  // Afterwards StreamsOfRow returns the drafter's output, and Logits of the main rows are lost.
  absl::Status ForwardDraft(const StepRows& step, const int32_t* tokens,
                            absl::Span<const StreamSource> sources, const LogitRequests& head = {});
  // The same in parts, for verification: BeginDraft computes the streams of the first block, then
  // one call for each of the drafter's blocks, streams -> streams.
  absl::Status BeginDraft(const StepRows& step, const int32_t* tokens,
                          absl::Span<const StreamSource> sources);
  absl::Status RunDraftBlock(int64_t block);
  // Whether a draft of several tokens can be chosen on the device.
  bool chains() const { return drafts_ != nullptr && drafts_->chains(); }
  // The passes of a draft, as ForwardDraft, and the choice of its tokens, as one graph if recorded.
  // Answers to the questions are available after Synchronize. REQUIRES: chains(); at most
  // limits().drafts passes or following drafts; passes after the first have at most one row for
  // each sequence.
  absl::Status ForwardDrafts(const DraftChain& chain);
  // DraftBlocks::Follow for rows of the last ForwardDraft's head: tokens[i] is the token before row
  // rows[i], questions[i] (if given) asks about it. Its confidence and the answer are available
  // after Synchronize.
  absl::Status FollowDrafts(absl::Span<const int32_t> rows, absl::Span<const int32_t> tokens,
                            absl::Span<const LogitQuestion> questions = {});
  float Confidence(int32_t row) { return pass_.logits.confidences()[row]; }
  // The input of the norm of the drafter's head, for row `row` of its last rows and those after it:
  // [D] act each. For verification. REQUIRES: the drafter keeps it.
  absl::Status ReadDraftHidden(int32_t row, absl::Span<std::byte> to) {
    return drafts_->ReadHidden(row, to);
  }
  // Logits of rows of the last ForwardDraft.
  absl::StatusOr<const float*> DraftLogits(absl::Span<const int32_t> row_of);

  // The residual streams of the step's rows: [T, 4, D], f32 or bf16 (activation_dtype). For
  // verification.
  absl::Status ReadStreams(absl::Span<std::byte> to);
  absl::Status WriteStreams(absl::Span<const std::byte> from);
  DType activation_dtype() const { return pass_.context.act_dtype(); }
  // Waits for the device; see Device::Synchronize.
  absl::Status Synchronize() { return recorded_.Synchronize(); }
  // Observes tensors between operators until it is replaced; null: none. For verification.
  void set_tap(const Tap* tap) { pass_.context.tap = tap; }
  // Launches the two halves of the experts separately from now on, also with one rank, so that the
  // values between them can be observed. For verification. Errors: OutOfMemory.
  absl::Status SplitExperts();
  // Another rank is observed: this one must launch kernel by kernel, too.
  void set_watched(bool watched) { recorded_.set_watched(watched); }
  // For benchmarks that changed the views of weights: records the steps again. Not while one runs.
  absl::Status RecordAgain();

 private:
  Model(const Parts& parts, const StepLimits& limits);
  absl::Status Plan();
  // Bytes of the activations and of the steps' inputs. Places them at `memory` unless it is null.
  absl::StatusOr<int64_t> PlaceMemory(std::byte* memory);
  absl::Status RunLayers(const std::function<bool()>* stop);
  absl::Status Pace(int64_t layer);
  absl::Status Stopped(const std::function<bool()>* stop, int64_t layer) const;
  // ExpertStore::EndPass.
  absl::Status EndPass(const absl::Status& status);
  absl::Status ExpectDrafter() const;
  // copy_from_ -> copy_to_
  absl::Status CopyStreams(int32_t rows);
  // The head of `kind` for `rows` rows of the pass, and answers to the questions about them.
  absl::Status RunHeadOf(PassKind kind, int32_t rows, bool questions, float* part);
  // The same for rows that were not uploaded yet; no operation if there are none.
  absl::Status LaunchHead(PassKind kind, const LogitRequests& head);
  absl::StatusOr<const float*> LaunchAndFetch(PassKind kind, absl::Span<const int32_t> row_of);

  RunningPass pass_;
  const Parts& parts_;                         // of pass_
  ForwardContext& context_;                    // of pass_
  const std::unique_ptr<DraftPasses> drafts_;  // null: not planned for
  RecordedPasses recorded_;
  Buffer memory_;
  Buffer products_;               // of SplitExperts
  StatusExchange read_failures_;  // where experts lie on disk and there are several ranks
  std::vector<std::byte> tap_memory_;
  // [limits.rows] For StoreStreams.
  std::vector<const std::byte*> copy_from_;
  std::vector<std::byte*> copy_to_;
};

}  // namespace dsv4
