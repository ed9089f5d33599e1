// SPDX-License-Identifier: Apache-2.0
#include "lib/model/model_ranks.h"

#include <utility>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/base/waitable_word.h"

namespace dsv4 {
namespace {

// The first rank decides whether a pass stops before a layer. The others read its answers one after
// another, so that all ranks stop before the same layer.
class StopAnswers {
 public:
  bool Give(bool stop) {
    // Twice the number of layers that may run, plus 1 if no more will.
    answers_.value.fetch_add(stop ? 1 : 2);
    answers_.WakeAll();
    return stop;
  }
  // No further answers will come.
  void Close() {
    answers_.value.fetch_or(1);
    answers_.WakeAll();
  }
  // Waits for the answer about layer `layer`.
  bool Take(uint32_t layer) {
    for (;;) {
      const uint32_t answers = answers_.value.load();
      if (answers / 2 > layer) return false;
      if (answers % 2 == 1) return true;
      answers_.WaitWhile(answers);
    }
  }

 private:
  WaitableWord answers_;
};

// Errors that depend only on the call's arguments occur on every rank, before any exchange.
bool FailsAlike(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsInternal(status) || absl::IsCancelled(status) ||
         IsReadFailure(status);
}

}  // namespace

bool IsReadFailure(const absl::Status& status) {
  return IsIoError(status) || IsCorrupt(status) || IsUnsupported(status);
}

absl::StatusOr<std::unique_ptr<ModelRanks>> ModelRanks::Create(
    std::vector<Model::Parts> parts, const StepLimits& limits,
    std::vector<std::unique_ptr<Communicator>> communicators) {
  std::unique_ptr<ModelRanks> ranks(new ModelRanks);
  ranks->models_.resize(parts.size());
  ranks->communicators_ = std::move(communicators);
  if (ranks->communicators_.empty()) {
    DSV4_ASSIGN_OR_RETURN(ranks->models_[0], Model::Create(parts[0], limits));
    return ranks;
  }
  DSV4_ASSIGN_OR_RETURN(ranks->threads_, RankThreads::Start(ranks->ranks()));
  // All concurrently, because recorded steps exchange their results. If several fail, most of them
  // fail because of one.
  std::vector<absl::Status> statuses(parts.size());
  const absl::Status status = ranks->threads_->Run([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    Communicator* const communicator = ranks->communicators_[r].get();
    statuses[r] = Contained([&]() -> absl::Status {
      DSV4_RETURN_IF_ERROR(communicator->Start());
      parts[r].communicator = communicator;
      DSV4_ASSIGN_OR_RETURN(ranks->models_[r], Model::Create(parts[r], limits));
      return absl::OkStatus();
    });
    if (!statuses[r].ok()) communicator->Abort(statuses[r]);
    return statuses[r];
  });
  if (status.ok()) return ranks;
  for (const absl::Status& reason : statuses) {
    if (!reason.ok() && !IsDeviceLost(reason)) return reason;
  }
  return status;
}

absl::Status ModelRanks::OnAll(absl::FunctionRef<absl::Status(Model& model, int rank)> f) {
  if (communicators_.empty()) return f(first(), 0);
  return threads_->Run([&](int rank) {
    absl::Status status = Contained([&] { return f(*models_[static_cast<size_t>(rank)], rank); });
    if (!status.ok() && !FailsAlike(status)) Abort(rank, status);
    return status;
  });
}

absl::Status ModelRanks::Told(absl::FunctionRef<MessageWriter()> message,
                              absl::FunctionRef<absl::Status()> f) {
  if (group_ == nullptr) return f();
  const MutexLock lock(group_->sending());
  const absl::Status status = Contained([&] {
    group_->sending()->AssertHeld();
    return group_->Send(message().bytes());
  });
  if (status.ok()) return f();
  group_->Abort(status);
  return status;
}

absl::Status ModelRanks::Begin(const StepRows& step, const int32_t* tokens) {
  return OnAll([&](Model& model, int) { return model.Begin(step, tokens); });
}

absl::Status ModelRanks::Embed() {
  return OnAll([](Model& model, int) { return model.Embed(); });
}

absl::Status ModelRanks::RunLayer(int64_t layer) {
  return OnAll([&](Model& model, int) { return model.RunLayer(layer); });
}

absl::Status ModelRanks::TapLayer(int64_t layer) {
  return OnAll([&](Model& model, int) { return model.TapLayer(layer); });
}

absl::Status ModelRanks::Forward(const StepRows& step, const int32_t* tokens,
                                 const std::function<bool()>* stop, const LogitRequests& head) {
  if (group_ != nullptr) {
    // Other processes cannot be asked before each layer: a pass that has begun is completed.
    if (stop != nullptr && (*stop)()) return Cancelled("stopped before a pass");
    const auto message = [&] {
      return MessageWriter(GroupCommand::kForward)
          .AddStep(step, tokens)
          .AddList(absl::MakeConstSpan(head.rows));
    };
    return Told(message, [&] {
      return OnAll([&](Model& model, int) { return model.Forward(step, tokens, nullptr, head); });
    });
  }
  if (ranks() == 1 || stop == nullptr) {
    return OnAll([&](Model& model, int) { return model.Forward(step, tokens, stop, head); });
  }
  StopAnswers answers;
  return OnAll([&](Model& model, int rank) {
    if (rank == 0) {
      const std::function<bool()> give = [&] { return answers.Give((*stop)()); };
      // The others wait for answers even if this throws.
      const absl::Status status =
          Contained([&] { return model.Forward(step, tokens, &give, head); });
      answers.Close();
      return status;
    }
    uint32_t layer = 0;
    const std::function<bool()> take = [&] { return answers.Take(layer++); };
    return model.Forward(step, tokens, &take, head);
  });
}

absl::Status ModelRanks::StoreStreams(absl::Span<const int32_t> rows,
                                      absl::Span<const int32_t> slots) {
  if (rows.empty()) return absl::OkStatus();
  const auto message = [&] {
    return MessageWriter(GroupCommand::kStoreStreams).AddList(rows).AddList(slots);
  };
  return Told(message, [&] {
    return OnAll([&](Model& model, int) { return model.StoreStreams(rows, slots); });
  });
}

absl::Status ModelRanks::ForwardDraft(const StepRows& step, const int32_t* tokens,
                                      absl::Span<const StreamSource> sources,
                                      const LogitRequests& head) {
  const auto message = [&] {
    return MessageWriter(GroupCommand::kForwardDraft)
        .AddStep(step, tokens)
        .AddList(sources)
        .AddList(absl::MakeConstSpan(head.rows));
  };
  return Told(message, [&] {
    return OnAll(
        [&](Model& model, int) { return model.ForwardDraft(step, tokens, sources, head); });
  });
}

absl::Status ModelRanks::ForwardDrafts(const DraftChain& chain) {
  return OnAll([&](Model& model, int) { return model.ForwardDrafts(chain); });
}

absl::Status ModelRanks::BeginDraft(const StepRows& step, const int32_t* tokens,
                                    absl::Span<const StreamSource> sources) {
  return OnAll([&](Model& model, int) { return model.BeginDraft(step, tokens, sources); });
}

absl::Status ModelRanks::RunDraftBlock(int64_t block) {
  return OnAll([&](Model& model, int) { return model.RunDraftBlock(block); });
}

absl::StatusOr<const float*> ModelRanks::FetchLogits(FetchOne fetch, GroupCommand command,
                                                     absl::Span<const int32_t> row_of) {
  const float* logits = nullptr;
  const auto message = [&] { return MessageWriter(command).AddList(row_of); };
  DSV4_RETURN_IF_ERROR(Told(message, [&] {
    return OnAll([&](Model& model, int rank) -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(const float* const own, (model.*fetch)(row_of));
      if (rank == 0) logits = own;
      return absl::OkStatus();
    });
  }));
  return logits;
}

absl::StatusOr<const float*> ModelRanks::Logits(absl::Span<const int32_t> row_of) {
  return FetchLogits(&Model::Logits, GroupCommand::kLogits, row_of);
}

absl::StatusOr<const float*> ModelRanks::DraftLogits(absl::Span<const int32_t> row_of) {
  return FetchLogits(&Model::DraftLogits, GroupCommand::kDraftLogits, row_of);
}

absl::Status ModelRanks::WriteStreams(absl::Span<const std::byte> from) {
  return OnAll([&](Model& model, int) { return model.WriteStreams(from); });
}

absl::Status ModelRanks::Synchronize() {
  return OnAll([](Model& model, int) { return model.Synchronize(); });
}

// One transfer for rows that follow each other.
absl::Status ModelRanks::Fetch(const LogitRequests& requests, bool* device_idle) {
  const auto fetch = [&](int32_t first, int32_t end) {
    return first < end ? logits().Fetch(first, end - first) : absl::OkStatus();
  };
  if (!requests.questions.empty()) {
    DSV4_RETURN_IF_ERROR(Synchronize());
    *device_idle = true;
  }
  int32_t first = 0;
  for (const LogitQuestion& question : requests.questions) {
    DSV4_RETURN_IF_ERROR(fetch(first, question.row));
    first = question.row + 1;
  }
  return fetch(first, requests.size());
}

}  // namespace dsv4
