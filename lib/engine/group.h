// SPDX-License-Identifier: Apache-2.0
// An engine's part in a group of processes (lib/dist/process_group.h): the leader sends its writes
// to the cache between passes, and the other processes repeat them.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/dist/process_group.h"
#include "lib/experts/expert_profile.h"
#include "lib/kv/kv_cache.h"
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

// Executes the leader's messages until the leader closes. Calls `keep_serving` after every message,
// at least once a second, with the number of rows computed so far. If it returns false, this
// returns Cancelled, and the leader's calls DeviceLost. Errors: DeviceLost.
absl::Status FollowLeader(ProcessGroup* group, ModelRanks* model, KvCache* cache,
                          absl::FunctionRef<bool(int64_t rows)> keep_serving);

}  // namespace dsv4
