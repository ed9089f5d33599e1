// SPDX-License-Identifier: Apache-2.0
// The forward pass of a step: a ragged batch of prefill chunks and decode rows of several sequences
// through all layers, the head and the drafter's blocks. It owns the activations; weights, cache
// and kernels belong to the engine. Used by one thread at a time.
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

// The streams that a row of an MTP pass begins with: those of a row of the last pass, or those that
// a state slot keeps.
struct StreamSource {
  static StreamSource OfRow(int32_t row) { return {.row = row, .slot = kNoBlock}; }
  static StreamSource OfSlot(int32_t slot) { return {.row = -1, .slot = slot}; }
  int32_t row, slot;
};

// Passes of a drafter that are launched together: a pass may continue with tokens that an earlier
// one has chosen.
struct DraftPass {
  StepRows step;
  const int32_t* tokens = nullptr;  // below 0: -1 - i stands for the token of list i
  absl::Span<const StreamSource> sources{};
  HeadRows head;
};
struct DraftChain {
  absl::Span<const DraftPass> passes{};
  FollowingDrafts following{};  // of the last pass's head, where logits depend on the token before
};

class Model {
 public:
  struct Parts {
    const ModelConfig* config = nullptr;
    const WeightViews* weights = nullptr;
    ExpertMover* mover = nullptr;      // of their experts; null: they stay
    bool fetches = false;              // plan for experts that lie on disk
    ExpertFetcher* fetcher = nullptr;  // theirs; null when planning, or where none do
    bool shares_experts = false;       // plan for experts that the CPU computes
    CpuShare* share = nullptr;         // theirs; null when planning, or where it has none
    bool streams_experts = false;      // plan for experts that are streamed
    ExpertStreamer* streamer = nullptr;
    ExpertPages* pages = nullptr;  // of mapped files; null: no budget
    Dispatch* dispatch = nullptr;
    Device* device = nullptr;
    absl::Span<const LayerCache> layers{};  // the cache's; when only planning, without memory
    StatePool streams{};                    // the cache's
    bool drafts = false;  // plan for the weights' drafter, whose rows are the cache's last layers
    uint64_t omitted_points = 0;  // see LaunchContext
    bool graphs = true;           // record steps of few rows where the device can
    // Mask of tokens that may be chosen unless a question says otherwise; empty: all. Read once.
    absl::Span<const uint32_t> with_text{};
    const Shards* shards = nullptr;
    int rank = 0;
    Communicator* communicator = nullptr;  // where there are several ranks; null when planning
  };

  // Prepares every operator for the largest step and allocates the activations. Unsupported names
  // the operator and the reason. What `parts` points to must outlive the model.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const Parts& parts,
                                                       const StepLimits& limits);
  // The workspace_bytes() that Create would come to, with its refusals; allocates nothing on the
  // device and reads no weight.
  static absl::StatusOr<int64_t> PlanBytes(const Parts& parts, const StepLimits& limits);

  ~Model();
  const StepLimits& limits() const { return limits_; }
  int64_t workspace_bytes() const { return memory_.size_bytes(); }

  // Starts a step: sets its rows (their pointers must live until the next one) and computes the
  // rope tables. InvalidArgument beyond the limits. `tokens`: [T].
  absl::Status Begin(const StepRows& step, const int32_t* tokens);
  // embedding of the step's tokens -> streams.
  absl::Status Embed();
  // Main layer `layer`: streams -> streams.
  absl::Status RunLayer(int64_t layer);
  // What the drafter needs of the streams after it, and after the last one of all layers.
  absl::Status TapLayer(int64_t layer);
  // Logits of the rows `row_of` of the step, from the main head: [row_of.size(), vocab] in host
  // memory.
  absl::StatusOr<const float*> Logits(absl::Span<const int32_t> row_of);
  // Those of the head that was launched last.
  LogitRows& logits() { return logits_; }

  // Begin, Embed and all layers, then the main head for the rows of `head`, if any; logits() has
  // the answers to its questions after Synchronize. `stop`, if any, is asked before each layer;
  // true ends the step with Cancelled: rows that it had computed are garbage behind the sequences'
  // ends.
  absl::Status Forward(const StepRows& step, const int32_t* tokens,
                       const std::function<bool()>* stop = nullptr, const HeadRows& head = {});

  // X, the residual streams of row `row` of the last Forward or ForwardDraft: [4, D] act, until the
  // next one.
  const std::byte* StreamsOfRow(int32_t row) const;
  int64_t streams_row_bytes() const;
  // Copies X of some rows to state slots. InvalidArgument beyond the step's rows.
  absl::Status SaveStreams(absl::Span<const int32_t> rows, absl::Span<const int32_t> slots);

  // A pass of the drafter's blocks; step.positions holds the slots of its rows. Where it begins
  // with streams, sources[r] is the X that row r is made of: of a row of the last pass, or
  // what SaveStreams kept; else `sources` is empty. Afterwards StreamsOfRow is the blocks' own
  // output. The main rows' Logits are to be taken before it. `head`: of the drafter's, as
  // Forward's.
  absl::Status ForwardDraft(const StepRows& step, const int32_t* tokens,
                            absl::Span<const StreamSource> sources, const HeadRows& head = {});
  // The same in parts, for verification: what the first block starts from, and one block, streams
  // -> streams. REQUIRES: `block` is one of the drafter's; BeginDraft came before it.
  absl::Status BeginDraft(const StepRows& step, const int32_t* tokens,
                          absl::Span<const StreamSource> sources);
  absl::Status RunDraftBlock(int64_t block);
  // Whether a draft of several tokens can be chosen on the device.
  bool chains() const {
    // Tokens are chosen on the first rank: what further passes draft after would be there alone.
    return drafter_ != nullptr && !parts_.device->host_memory() &&
           (drafter_->follows() || parts_.shards->ranks == 1);
  }
  // The passes of a draft, as ForwardDraft, and the choice of its tokens: one graph, where it is
  // recorded. Answers to the questions are there after Synchronize. A pass but the first has at
  // most a row for each sequence. REQUIRES: chains(); at most limits().drafts passes or following
  // drafts.
  absl::Status ForwardDrafts(const DraftChain& chain);
  // DraftBlocks::Follow, for rows of the last ForwardDraft's head: row rows[i] comes after token
  // tokens[i]; questions[i], if any are given, is about it. Its confidence and the answer are there
  // after Synchronize.
  absl::Status FollowDrafts(absl::Span<const int32_t> rows, absl::Span<const int32_t> tokens,
                            absl::Span<const LogitQuestion> questions = {});
  float Confidence(int32_t row) { return logits_.confidences()[row]; }
  // What the drafter's head norms for row `row` of its last ones and those after it: [D] act each.
  // For verification. REQUIRES: the drafter keeps it.
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
  // Sees values between operators until it is replaced; null = none. For verification.
  void set_tap(const Tap* tap) { context_.tap = tap; }
  // From now on the two halves of the experts are launches of their own, also with one rank: what
  // the second one quantises can be seen. For verification. Errors: OutOfMemory.
  absl::Status SplitExperts();
  // Another rank's values or launches are seen: this one launches kernel by kernel, too.
  void set_watched(bool watched) { watched_ = watched; }

 private:
  // The main layers with their head, or the drafter's blocks with theirs.
  enum class Pass { kMain, kDraft };
  // A pass, recorded without its head and with it.
  struct RecordedPass {
    std::unique_ptr<Graph> alone, with_head;
  };
  // Steps of few rows, recorded for each number of rows that they are padded to.
  struct RecordedStep {
    StepUpload::Shape shape;
    RecordedPass main, draft;         // draft: where it is planned for
    StepUpload::Shape chain_shape{};  // of the first pass of a chain
    std::unique_ptr<Graph> chain;     // where they are planned for
  };
  // What a recorded pass fetches.
  struct FetchedInputs {
    StepUpload upload;
    bool launched = false;  // and not known to have been fetched
  };

  Model(const Parts& parts, const StepLimits& limits);
  absl::Status Plan();
  // Bytes of the activations and of what steps upload; with `memory` not null, places all of it
  // there.
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
  // Records the steps up to RecordedLimits, and has the kernels of larger ones loaded.
  absl::Status RecordSteps();
  absl::Status RecordPass(Pass pass, const StepUpload::Shape& shape, RecordedPass* recorded);
  // Those of passes of that shape, with a head, by recordings that are dropped.
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
  // Waits for exchanges that the device has still to make, and for no more.
  absl::Status FinishExchanges() {
    return parts_.communicator == nullptr ? absl::OkStatus() : parts_.communicator->Synchronize();
  }
  // Whether steps of few rows are recorded. Behind a gate the host looks for experts on disk, and
  // for the CPU's.
  bool Records() const { return parts_.graphs && !parts_.fetches && !parts_.shares_experts; }
  void BeginFetches() {
    if (parts_.fetcher != nullptr) parts_.fetcher->BeginPass();
  }
  // After a pass that ended with `status`: the failure of its reads on any rank, if there was one.
  // Ranks that exchange get here alike.
  absl::Status EndFetches(const absl::Status& status);
  // The main pass from its layers on, and a chain of the drafter's, where they are not recorded.
  absl::Status RunMain(const StepRows& step, const int32_t* tokens,
                       const std::function<bool()>* stop, const HeadRows& head);
  absl::Status RunChain(const DraftChain& chain);
  // The one that fits; null: none, or something watches what is launched.
  const RecordedStep* Recorded(const StepRows& step) const;
  const RecordedStep* RecordedChain(const StepRows& step) const;
  absl::Status Stopped(const std::function<bool()>* stop, int64_t layer) const;
  // copy_from_ -> copy_to_
  absl::Status CopyStreams(int32_t rows);
  // Has `rows` rows copied to where the drafter reads them, if it does.
  void SetSources(absl::Span<const StreamSource> sources, int32_t rows, PassInputs* inputs);
  CopyRowsParams CopyParams(int32_t rows, const std::byte* const* from, std::byte* const* to) const;
  absl::Status ExpectHead(const HeadRows& head) const;
  // The head of `pass` for `rows` rows of it, and answers to the questions about them.
  absl::Status RunHeadOf(Pass pass, int32_t rows, bool questions, int part = 0);
  // The answers to the questions about `rows` rows of the last head.
  TokenCandidatesParams Candidates(int32_t rows);
  // The same for rows that the device does not have yet; nothing where there are none.
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
  // For ForwardDraft and SaveStreams, of limits_.rows.
  std::vector<int64_t> draft_positions_;
  std::vector<const std::byte*> copy_from_;
  std::vector<std::byte*> copy_to_;
};

}  // namespace dsv4
