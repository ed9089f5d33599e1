// SPDX-License-Identifier: Apache-2.0
// The forward pass of an engine: a Model for each of its devices, which compute a step together.
// - One device: calls go to its Model.
// - Several: every call runs on a thread for each rank, and the models exchange their parts of each
//   layer. Results are those of the first rank.
// - Ranks in other processes: they receive a message for every pass.
// Threads: one at a time.
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

// Whether a pass failed because of reads of experts. It has then made all its exchanges, and fails
// on all ranks with the same error.
bool IsReadFailure(const absl::Status& status);

class ModelRanks {
 public:
  // `parts`: of each rank of this process; their communicators become these, one for each rank
  // where there are several. Errors of Model::Create.
  static absl::StatusOr<std::unique_ptr<ModelRanks>> Create(
      std::vector<Model::Parts> parts, const StepLimits& limits,
      std::vector<std::unique_ptr<Communicator>> communicators);

  // For the leader of a process group: uses the group's communicator, and sends a message to the
  // other processes for every pass.
  void Lead(ProcessGroup* group) { group_ = group; }

  int ranks() const { return static_cast<int>(models_.size()); }  // of this process
  const StepLimits& limits() const { return first().limits(); }
  int64_t workspace_bytes(int rank) const {
    return models_[static_cast<size_t>(rank)]->workspace_bytes();
  }

  // As in Model. After the failure of a rank, all later calls return DeviceLost.
  absl::Status Begin(const StepRows& step, const int32_t* tokens);
  absl::Status Embed();
  absl::Status RunLayer(int64_t layer);
  absl::Status TapLayer(int64_t layer);
  absl::StatusOr<const float*> Logits(absl::Span<const int32_t> row_of);
  LogitRows& logits() { return first().logits(); }
  absl::Status Forward(const StepRows& step, const int32_t* tokens,
                       const std::function<bool()>* stop = nullptr, const LogitRequests& head = {});
  const std::byte* StreamsOfRow(int32_t row) const { return first().StreamsOfRow(row); }
  int64_t streams_row_bytes() const { return first().streams_row_bytes(); }
  absl::Status StoreStreams(absl::Span<const int32_t> rows, absl::Span<const int32_t> slots);
  absl::Status ForwardDraft(const StepRows& step, const int32_t* tokens,
                            absl::Span<const StreamSource> sources, const LogitRequests& head = {});
  // False in a group of processes: the leader's host chooses the tokens.
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
  // After a pass with the head's rows `requests`: waits for the answers to its questions, and for
  // the logits of rows without a question. *device_idle: the device has finished all work.
  absl::Status Fetch(const LogitRequests& requests, bool* device_idle);
  // Observes the first rank.
  void set_tap(const Tap* tap) {
    first().set_tap(tap);
    set_watched(tap != nullptr);
  }
  absl::Status SplitExperts() { return first().SplitExperts(); }
  // Observes the first rank's launches; all ranks launch kernel by kernel.
  void set_watched(bool watched) {
    for (const std::unique_ptr<Model>& model : models_) model->set_watched(watched);
  }
  // See Model::RecordAgain. One rank only.
  absl::Status RecordAgain() { return first().RecordAgain(); }

  // A rank failed with `reason`: ends its exchanges, so that the call that runs and all later ones
  // return DeviceLost. Any thread.
  void Abort(int rank, const absl::Status& reason) {
    communicators_[static_cast<size_t>(rank)]->Abort(reason);
  }

 private:
  ModelRanks() = default;
  Model& first() const { return *models_.front(); }
  // Calls f(model, rank) on all ranks, and aborts the others' exchanges if one fails.
  absl::Status OnAll(absl::FunctionRef<absl::Status(Model& model, int rank)> f);
  using FetchOne = absl::StatusOr<const float*> (Model::*)(absl::Span<const int32_t> row_of);
  absl::StatusOr<const float*> FetchLogits(FetchOne fetch, GroupCommand command,
                                           absl::Span<const int32_t> row_of);
  // Sends the message to the processes of the group, if there is one, then calls f(). Exchanges of
  // both happen in the same order.
  absl::Status Told(absl::FunctionRef<MessageWriter()> message,
                    absl::FunctionRef<absl::Status()> f);

  std::vector<std::unique_ptr<Communicator>> communicators_;  // none with one rank
  std::vector<std::unique_ptr<Model>> models_;
  std::unique_ptr<RankThreads> threads_;  // none with one rank
  ProcessGroup* group_ = nullptr;         // that this process leads
};

}  // namespace dsv4
