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
#include "kernels/op/dense.h"
#include "kernels/op/rope.h"
#include "lib/device/device.h"
#include "lib/dist/status_exchange.h"
#include "lib/kv/kv_cache.h"
#include "lib/model/draft_blocks.h"
#include "lib/model/forward_context.h"
#include "lib/model/logit_rows.h"
#include "lib/model/step_upload.h"
#include "lib/model/weights.h"

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
  HeadRows head;
};
struct DraftChain {
  absl::Span<const DraftPass> passes{};
  FollowingDrafts following{};  // of the last head, if logits depend on the previous token
};

class Model {
 public:
  struct Parts {
    const ModelConfig* config = nullptr;
    const WeightViews* weights = nullptr;
    ExpertMover* mover = nullptr;      // null: experts do not move
    bool fetches = false;              // plan for experts on disk
    ExpertFetcher* fetcher = nullptr;  // null when planning, and if no expert lies on disk
    bool shares_experts = false;       // plan for experts that the CPU computes
    CpuShare* share = nullptr;         // null when planning, and if the CPU computes none
    bool streams_experts = false;      // plan for experts that are streamed
    ExpertStreamer* streamer = nullptr;
    ExpertPages* pages = nullptr;  // of mapped files; null: no budget
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

  // Prepares every operator for the largest step and allocates the activations. Errors:
  // Unsupported, naming the operator and the reason. The objects in `parts` must outlive the model.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const Parts& parts,
                                                       const StepLimits& limits);
  // The workspace_bytes() of a model that Create makes, with the errors of Create. Allocates
  // nothing on the device and reads no weight.
  static absl::StatusOr<int64_t> PlanBytes(const Parts& parts, const StepLimits& limits);

  ~Model();
  const StepLimits& limits() const { return limits_; }
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
  LogitRows& logits() { return logits_; }

  // Begin, Embed and all layers, then the main head for the rows of `head`, if any. After
  // Synchronize logits() has the answers to its questions. `stop`, if any, is called before each
  // layer; if it returns true, the step ends with Cancelled, and the cache rows that it wrote are
  // undefined.
  absl::Status Forward(const StepRows& step, const int32_t* tokens,
                       const std::function<bool()>* stop = nullptr, const HeadRows& head = {});

  // The residual streams X of row `row` of the last Forward or ForwardDraft: [4, D] act. Valid
  // until the next pass.
  const std::byte* StreamsOfRow(int32_t row) const;
  int64_t streams_row_bytes() const;
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
                            absl::Span<const StreamSource> sources, const HeadRows& head = {});
  // The same in parts, for verification: BeginDraft computes the streams of the first block, then
  // one call for each of the drafter's blocks, streams -> streams.
  absl::Status BeginDraft(const StepRows& step, const int32_t* tokens,
                          absl::Span<const StreamSource> sources);
  absl::Status RunDraftBlock(int64_t block);
  // Whether a draft of several tokens can be chosen on the device.
  bool chains() const {
    // Tokens are chosen on the first rank; the others would not have them for further passes.
    return drafter_ != nullptr && !parts_.device->host_memory() &&
           (drafter_->follows() || parts_.shards->ranks == 1);
  }
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
  float Confidence(int32_t row) { return logits_.confidences()[row]; }
  // The input of the norm of the drafter's head, for row `row` of its last rows and those after it:
  // [D] act each. For verification. REQUIRES: the drafter keeps it.
  absl::Status ReadDraftHidden(int32_t row, absl::Span<std::byte> to);
  // Logits of rows of the last ForwardDraft.
  absl::StatusOr<const float*> DraftLogits(absl::Span<const int32_t> row_of);

  // The residual streams of the step's rows: [T, 4, D], f32 or bf16 (activation_dtype). For
  // verification.
  absl::Status ReadStreams(absl::Span<std::byte> to);
  absl::Status WriteStreams(absl::Span<const std::byte> from);
  DType activation_dtype() const { return context_.act_dtype(); }
  // Waits for the device; see Device::Synchronize.
  absl::Status Synchronize();
  // Observes tensors between operators until it is replaced; null: none. For verification.
  void set_tap(const Tap* tap) { context_.tap = tap; }
  // Launches the two halves of the experts separately from now on, also with one rank, so that the
  // values between them can be observed. For verification. Errors: OutOfMemory.
  absl::Status SplitExperts();
  // Another rank is observed: this one must launch kernel by kernel, too.
  void set_watched(bool watched) { watched_ = watched; }

 private:
  // The main layers with their head, or the drafter's blocks with theirs.
  enum class Pass { kMain, kDraft };
  // A recorded pass, without its head and with it.
  struct RecordedPass {
    std::unique_ptr<Graph> alone, with_head;
  };
  // Steps of few rows, recorded for each number of rows that they are padded to.
  struct RecordedStep {
    StepUpload::Shape shape;
    RecordedPass main, draft;         // draft: if planned for
    StepUpload::Shape chain_shape{};  // of the first pass of a chain
    std::unique_ptr<Graph> chain;     // if planned for
  };
  // The inputs of a recorded pass, which it copies from pinned memory.
  struct FetchedInputs {
    StepUpload upload;
    bool launched = false;  // the pass was launched and may not have copied them yet
  };

  Model(const Parts& parts, const StepLimits& limits);
  absl::Status Plan();
  // Bytes of the activations and of the steps' inputs. Places them at `memory` unless it is null.
  absl::StatusOr<int64_t> PlaceMemory(std::byte* memory);
  int32_t StreamRows() const;
  // Limits of the steps that are recorded.
  StepLimits RecordedLimits() const;
  // Sets the rows of a pass, padded to `shape`.
  absl::Status SetPass(StepUpload* upload, const StepUpload::Shape& shape, const HeadRows& head,
                       PassInputs inputs, FollowingDrafts* following = nullptr, bool first = true);
  // The same without padding or head.
  absl::Status SetPass(const PassInputs& inputs);
  absl::Status ComputeRope();
  absl::Status RunLayers(const std::function<bool()>* stop);
  absl::Status Pace(int64_t layer);
  absl::StatusOr<PassInputs> DraftInputs(const StepRows& step, const int32_t* tokens,
                                         absl::Span<const StreamSource> sources);
  absl::Status BeginDraft();
  absl::Status RunDraft();
  absl::Status RunPass(Pass pass);
  StepUpload::Shape ShapeOf(int32_t rows) const;
  // Records the steps up to RecordedLimits, and loads the kernels of larger ones.
  absl::Status RecordSteps();
  absl::Status RecordPass(Pass pass, const StepUpload::Shape& shape, RecordedPass* recorded);
  // Loads the kernels of passes of that shape, with a head, by recording and dropping them.
  absl::Status LoadKernels(const StepUpload::Shape& shape);
  // Prepares an all-padding pass for graph capture. Its outputs are never read.
  absl::Status SetPadding(Pass pass, StepUpload* upload, const StepUpload::Shape& shape);
  // The shape of the first pass of a chain for steps of `shape`, and of pass `pass` of it.
  StepUpload::Shape ChainShape(const StepUpload::Shape& shape) const;
  StepUpload::Shape ChainShape(const StepUpload::Shape& first, size_t pass) const;
  size_t ChainPasses() const;
  absl::Status SetChainPass(const DraftChain& chain, size_t pass, StepUpload* upload,
                            const StepUpload::Shape& shape);
  absl::Status RunChainPass(size_t pass, int32_t head_rows);
  absl::Status RecordChain(RecordedStep* step);
  FetchedInputs& ChainFetched(size_t pass) {
    return pass == 0 ? FetchedOf(Pass::kDraft) : chain_fetched_[pass - 1];
  }
  absl::Status Replay(Pass pass, const RecordedStep& step, const HeadRows& head,
                      const PassInputs& inputs);
  FetchedInputs& FetchedOf(Pass pass) { return fetched_[pass == Pass::kMain ? 0 : 1]; }
  // Waits for the outstanding exchanges of the device.
  absl::Status AwaitExchanges() {
    return parts_.communicator == nullptr ? absl::OkStatus() : parts_.communicator->Synchronize();
  }
  // Whether steps of few rows are recorded. Not with experts on disk or of the CPU: the host acts
  // after each gate.
  bool Records() const { return parts_.graphs && !parts_.fetches && !parts_.shares_experts; }
  void BeginFetches() {
    if (parts_.fetcher != nullptr) parts_.fetcher->BeginPass();
  }
  // Called after a pass that ended with `status`: returns the failure of its reads on any rank, if
  // there was one. All ranks call it.
  absl::Status EndFetches(const absl::Status& status);
  // The main pass from its layers on, and a chain of the drafter, kernel by kernel.
  absl::Status RunMain(const StepRows& step, const int32_t* tokens,
                       const std::function<bool()>* stop, const HeadRows& head);
  absl::Status RunChain(const DraftChain& chain);
  // The recorded step that fits; null: none, or launches are observed.
  const RecordedStep* Recorded(const StepRows& step,
                               StepUpload::Shape RecordedStep::*shape = &RecordedStep::shape) const;
  absl::Status Stopped(const std::function<bool()>* stop, int64_t layer) const;
  // copy_from_ -> copy_to_
  absl::Status CopyStreams(int32_t rows);
  // Copies `rows` rows to the drafter's sources, if it has any.
  void SetSources(absl::Span<const StreamSource> sources, int32_t rows, PassInputs* inputs);
  CopyRowsParams CopyParams(int32_t rows, const std::byte* const* from, std::byte* const* to) const;
  absl::Status ExpectHead(const HeadRows& head) const;
  // The head of `pass` for `rows` rows of it, and answers to the questions about them.
  absl::Status RunHeadOf(Pass pass, int32_t rows, bool questions, int part = 0);
  // The answers to the questions about `rows` rows of the last head.
  TokenCandidatesParams Candidates(int32_t rows);
  // The same for rows that were not uploaded yet; no operation if there are none.
  absl::Status LaunchHead(Pass pass, const HeadRows& head);
  absl::StatusOr<const float*> LaunchAndFetch(Pass pass, absl::Span<const int32_t> row_of);

  Parts parts_;
  StepLimits limits_;
  ForwardContext context_;
  std::unique_ptr<DraftBlocks> drafter_;  // null: not planned for
  RopeFrequencies frequencies_;
  Buffer memory_;
  Buffer products_;  // of SplitExperts
  TokenMasks masks_;
  StepUpload upload_;
  FetchedInputs fetched_[2];
  std::vector<FetchedInputs> chain_fetched_;  // of the passes of a chain after its first
  std::vector<PassInputs> chain_inputs_;      // of all of them
  FollowingDrafts following_;                 // of the chain, the device's
  int32_t* chosen_ = nullptr;                 // [R] the device's: tokens of lists
  PassInputs inputs_;                         // of the running pass, the device's
  int heads_ = 0;                             // launched for it after it
  std::vector<RecordedStep> recorded_;        // ascending
  LogitRows logits_;
  StatusExchange read_failures_;  // where experts lie on disk and there are several ranks
  bool watched_ = false;
  std::vector<std::byte> tap_memory_;
  // For ForwardDraft and StoreStreams, of limits_.rows.
  std::vector<int64_t> draft_positions_;
  std::vector<const std::byte*> copy_from_;
  std::vector<std::byte*> copy_to_;
};

}  // namespace dsv4
