// SPDX-License-Identifier: Apache-2.0
// What an engine does in a group of processes (lib/dist/process_group.h): the leader tells the
// others what it writes to its cache between passes, and the others do what they are told.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/dist/process_group.h"
#include "lib/kv/kv_cache.h"
#include "lib/model/expert_profile.h"
#include "lib/model/model_ranks.h"

namespace dsv4 {

class TellWrites final : public KvWrites {
 public:
  explicit TellWrites(ProcessGroup* group) : group_(group) {}
  void CopyWindowBlock(int32_t from, int32_t to) override;
  void CopyCompressedKvBlock(int32_t from, int32_t to) override;
  absl::Status PutImage(const ImageBlocks& blocks, absl::Span<const std::byte> image) override;

 private:
  void TellCopy(GroupCommand command, int32_t from, int32_t to);
  ProcessGroup* const group_;
};

// The profile by which all processes place experts: the leader's, if it has one. The others have
// none of their own. Errors: DeviceLost.
absl::StatusOr<std::optional<ExpertProfile>> ProfileOfLeader(
    ProcessGroup* group, const std::optional<ExpertProfile>& own);

// Does what the leader says until it closes. `keep_serving` is asked after every message, at least
// once a second, with the rows that were computed so far; false ends it with Cancelled, and the
// leader with DeviceLost. Errors: DeviceLost.
absl::Status FollowLeader(ProcessGroup* group, ModelRanks* model, KvCache* cache,
                          absl::FunctionRef<bool(int64_t rows)> keep_serving);

}  // namespace dsv4
