// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/group.h"

#include <utility>
#include <vector>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/model/group_messages.h"

namespace dsv4 {
namespace {

// Removes errors that the leader has, too: its own model reports invalid arguments, and the
// exchange at the end of a pass reports failed reads of experts.
absl::Status UnlessLeaders(const absl::Status& status) {
  const bool leaders = absl::IsInvalidArgument(status) || IsReadFailure(status);
  return leaders ? absl::OkStatus() : status;
}

class Follower {
 public:
  Follower(ModelRanks* model, KvCache* cache) : model_(model), cache_(cache) {}
  int64_t rows() const { return rows_; }

  absl::Status Do(absl::Span<const std::byte> message) {
    for (MessageReader reader(message); !reader.empty();) {
      DSV4_ASSIGN_OR_RETURN(const GroupCommand command, reader.Take<GroupCommand>());
      DSV4_RETURN_IF_ERROR(UnlessLeaders(Do(command, &reader)));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Do(GroupCommand command, MessageReader* reader) {
    switch (command) {
      case GroupCommand::kForward: {
        DSV4_RETURN_IF_ERROR(reader->TakeStep(&step_));
        DSV4_ASSIGN_OR_RETURN(head_.rows, reader->TakeList<int32_t>());
        rows_ += step_.step.rows;
        return model_->Forward(step_.step, step_.tokens.data(), nullptr, head_);
      }
      case GroupCommand::kForwardDraft: {
        DSV4_RETURN_IF_ERROR(reader->TakeStep(&step_));
        DSV4_ASSIGN_OR_RETURN(const std::vector<StreamSource> sources,
                              reader->TakeList<StreamSource>());
        DSV4_ASSIGN_OR_RETURN(head_.rows, reader->TakeList<int32_t>());
        return model_->ForwardDraft(step_.step, step_.tokens.data(), sources, head_);
      }
      case GroupCommand::kStoreStreams: {
        DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> rows, reader->TakeList<int32_t>());
        DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> slots, reader->TakeList<int32_t>());
        return model_->StoreStreams(rows, slots);
      }
      case GroupCommand::kLogits:
      case GroupCommand::kDraftLogits: {
        DSV4_ASSIGN_OR_RETURN(head_.rows, reader->TakeList<int32_t>());
        return (command == GroupCommand::kLogits ? model_->Logits(head_.rows)
                                                 : model_->DraftLogits(head_.rows))
            .status();
      }
      case GroupCommand::kCopyWindowBlock:
      case GroupCommand::kCopyCompressedKvBlock: {
        DSV4_ASSIGN_OR_RETURN(const int32_t from, reader->Take<int32_t>());
        DSV4_ASSIGN_OR_RETURN(const int32_t to, reader->Take<int32_t>());
        if (command == GroupCommand::kCopyWindowBlock) {
          cache_->CopyWindowBlock(from, to);
        } else {
          cache_->CopyCompressedKvBlock(from, to);
        }
        return absl::OkStatus();
      }
      case GroupCommand::kPutImage: {
        DSV4_ASSIGN_OR_RETURN(const int64_t length, reader->Take<int64_t>());
        DSV4_ASSIGN_OR_RETURN(const int32_t state, reader->Take<int32_t>());
        DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> windows, reader->TakeList<int32_t>());
        DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> compressed, reader->TakeList<int32_t>());
        DSV4_ASSIGN_OR_RETURN(const std::vector<std::byte> image, reader->TakeList<std::byte>());
        return cache_->PutImage(
            {.length = length, .windows = windows, .compressed = compressed, .state = state},
            image);
      }
      case GroupCommand::kExpertProfile:
        break;
    }
    return DeviceLost("rank 0 of the group sent the unknown command ",
                      static_cast<int32_t>(command));
  }

  ModelRanks* const model_;
  KvCache* const cache_;
  // The inputs of the running pass, which reads them.
  ReceivedStep step_;
  LogitRequests head_;
  int64_t rows_ = 0;
};

}  // namespace

// Without the message the other processes would not make the copy, and later results would be
// wrong.
void TellWrites::TellCopy(GroupCommand command, int32_t from, int32_t to) {
  const absl::Status told = Contained([&] {
    group_->AddBefore(MessageWriter(command).Add(from).Add(to).bytes());
    return absl::OkStatus();
  });
  if (!told.ok()) group_->Abort(told);
}

void TellWrites::CopyWindowBlock(int32_t from, int32_t to) {
  TellCopy(GroupCommand::kCopyWindowBlock, from, to);
}

void TellWrites::CopyCompressedKvBlock(int32_t from, int32_t to) {
  TellCopy(GroupCommand::kCopyCompressedKvBlock, from, to);
}

absl::Status TellWrites::PutImage(const ImageBlocks& blocks, absl::Span<const std::byte> image) {
  const absl::Status told = Contained([&] {
    MessageWriter message(GroupCommand::kPutImage);
    message.Add(blocks.length).Add(blocks.state).AddList(blocks.windows).AddList(blocks.compressed);
    message.AddList(image);
    const MutexLock lock(group_->sending());
    return group_->Send(message.bytes());
  });
  if (!told.ok()) group_->Abort(told);
  return told;
}

absl::StatusOr<std::optional<ExpertProfile>> ProfileOfLeader(
    ProcessGroup* group, const std::optional<ExpertProfile>& own) {
  MessageWriter writer(GroupCommand::kExpertProfile);
  if (own) {
    writer.Add(own->blocks).Add(own->experts).Add(own->passes);
    writer.AddList(absl::MakeConstSpan(own->calls));
  }
  DSV4_ASSIGN_OR_RETURN(const std::vector<std::byte> message, group->FromLeader(writer.bytes()));
  MessageReader reader(message);
  DSV4_RETURN_IF_ERROR(reader.Take<GroupCommand>().status());
  if (reader.empty()) return std::nullopt;
  ExpertProfile profile;
  DSV4_ASSIGN_OR_RETURN(profile.blocks, reader.Take<int64_t>());
  DSV4_ASSIGN_OR_RETURN(profile.experts, reader.Take<int64_t>());
  DSV4_ASSIGN_OR_RETURN(profile.passes, reader.Take<uint64_t>());
  DSV4_ASSIGN_OR_RETURN(profile.calls, reader.TakeList<uint64_t>());
  return profile;
}

absl::Status FollowLeader(ProcessGroup* group, ModelRanks* model, KvCache* cache,
                          absl::FunctionRef<bool(int64_t rows)> keep_serving) {
  Follower follower(model, cache);
  const absl::Status status = Contained([&]() -> absl::Status {
    for (;;) {
      bool closed = false;
      // Waits for the pass before, too.
      DSV4_ASSIGN_OR_RETURN(const std::vector<std::byte> message, group->Receive(&closed));
      if (closed) return absl::OkStatus();
      DSV4_RETURN_IF_ERROR(model->Synchronize());
      DSV4_RETURN_IF_ERROR(follower.Do(message));
      if (!keep_serving(follower.rows()))
        return Cancelled("the callback stopped serving the group");
    }
  });
  if (!status.ok()) group->Abort(status);
  return status;
}

}  // namespace dsv4
