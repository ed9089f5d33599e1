// SPDX-License-Identifier: Apache-2.0
// The forward pass of an engine: a Model for each of its devices, which compute a step together. On
// one device it is that device's Model and nothing else; on several, every call runs on a thread
// for each rank, and the models exchange what they have computed of a layer. What comes out lies
// where the first rank has it. Where further ranks are other processes', they are told of every
// pass. Used by one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/dist/communicator.h"
#include "lib/dist/process_group.h"
#include "lib/dist/rank_threads.h"
#include "lib/model/group_messages.h"
#include "lib/model/model.h"

namespace dsv4 {

// Whether a pass failed by reads of experts. It has then made all its exchanges, and fails alike on
// all ranks.
bool IsReadFailure(const absl::Status& status);

class ModelRanks {
 public:
  // `parts`: of each rank of this process; their communicators become these, one for each rank
  // where there are several. Errors of Model::Create.
  static absl::StatusOr<std::unique_ptr<ModelRanks>> Create(
      std::vector<Model::Parts> parts, const StepLimits& limits,
      std::vector<std::unique_ptr<Communicator>> communicators);

  // The only communicator is this group's, which this process leads: the other processes are told
  // of every pass.
  void Lead(ProcessGroup* group) { group_ = group; }

  int ranks() const { return static_cast<int>(models_.size()); }  // of this process
  const StepLimits& limits() const { return first().limits(); }
  int64_t workspace_bytes(int rank) const {
    return models_[static_cast<size_t>(rank)]->workspace_bytes();
  }

  // As Model's. A rank that fails makes all later calls DeviceLost.
  absl::Status Begin(const StepRows& step, const int32_t* tokens);
  absl::Status Embed();
  absl::Status RunLayer(int64_t layer);
  absl::Status TapLayer(int64_t layer);
  absl::StatusOr<const float*> Logits(absl::Span<const int32_t> row_of);
  LogitRows& logits() { return first().logits(); }
  absl::Status Forward(const StepRows& step, const int32_t* tokens,
                       const std::function<bool()>* stop = nullptr, const HeadRows& head = {});
  const std::byte* StreamsOfRow(int32_t row) const { return first().StreamsOfRow(row); }
  int64_t streams_row_bytes() const { return first().streams_row_bytes(); }
  absl::Status SaveStreams(absl::Span<const int32_t> rows, absl::Span<const int32_t> slots);
  absl::Status ForwardDraft(const StepRows& step, const int32_t* tokens,
                            absl::Span<const StreamSource> sources, const HeadRows& head = {});
  // Not in a group of processes, whose tokens the leader's host chooses.
  bool chains() const { return group_ == nullptr && first().chains(); }
  absl::Status ForwardDrafts(const DraftChain& chain);
  absl::StatusOr<const float*> DraftLogits(absl::Span<const int32_t> row_of);
  absl::Status BeginDraft(const StepRows& step, const int32_t* tokens,
                          absl::Span<const StreamSource> sources);
  absl::Status RunDraftBlock(int64_t block);
  // On the first rank, which has all logits.
  absl::Status FollowDrafts(absl::Span<const int32_t> rows, absl::Span<const int32_t> tokens,
                            absl::Span<const LogitQuestion> questions = {}) {
    return first().FollowDrafts(rows, tokens, questions);
  }
  float Confidence(int32_t row) { return first().Confidence(row); }
  absl::Status ReadDraftHidden(int32_t row, absl::Span<std::byte> to) {
    return first().ReadDraftHidden(row, to);
  }
  absl::Status ReadStreams(absl::Span<std::byte> to) { return first().ReadStreams(to); }
  absl::Status WriteStreams(absl::Span<const std::byte> from);
  DType activation_dtype() const { return first().activation_dtype(); }
  absl::Status Synchronize();
  // Sees what the first rank has.
  void set_tap(const Tap* tap) {
    first().set_tap(tap);
    set_watched(tap != nullptr);
  }
  absl::Status SplitExperts() { return first().SplitExperts(); }
  // The first rank's launches are seen, so that all ranks launch kernel by kernel.
  void set_watched(bool watched) {
    for (const std::unique_ptr<Model>& model : models_) model->set_watched(watched);
  }

  // A rank failed, of `reason`. Any thread; for tests, which have no device that fails.
  void Abort(int rank, const absl::Status& reason) {
    communicators_[static_cast<size_t>(rank)]->Abort(reason);
  }

 private:
  ModelRanks() = default;
  Model& first() const { return *models_.front(); }
  // Calls f(model, rank) on all ranks, and tells the others when one fails.
  absl::Status OnAll(absl::FunctionRef<absl::Status(Model& model, int rank)> f);
  using Fetch = absl::StatusOr<const float*> (Model::*)(absl::Span<const int32_t> row_of);
  absl::StatusOr<const float*> FetchLogits(Fetch fetch, GroupCommand command,
                                           absl::Span<const int32_t> row_of);
  // Calls f(), after the message was sent to the processes of the group, if there is one. They
  // make the exchanges of both in the same order.
  absl::Status Told(absl::FunctionRef<MessageWriter()> message,
                    absl::FunctionRef<absl::Status()> f);

  std::vector<std::unique_ptr<Communicator>> communicators_;  // none with one rank
  std::vector<std::unique_ptr<Model>> models_;
  std::unique_ptr<RankThreads> threads_;  // none with one rank
  ProcessGroup* group_ = nullptr;         // that this process leads
};

}  // namespace dsv4
