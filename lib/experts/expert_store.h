// SPDX-License-Identifier: Apache-2.0
// The routed experts of one rank, as a forward pass sees them: where they lie, how they reach the
// kernels, and in how many waves (ExpertWave) a block is computed.
//
// A store owns the slots and what moves experts between them. The units know nothing of each
// other; ForEachWave and traffic() are the only places that combine them:
// - ExpertMover: moves experts between device and host memory between two steps.
// - ExpertFetcher: reads experts from disk after a gate.
// - ExpertStreamer: copies the host's experts to the device for passes of many rows.
// - ExpertPages: pages of experts that the CPU's kernels read from mapped files.
//
// To add a format of experts: lib/packing has its values, sizes and packing, and kernels run it. A
// store moves the bytes of slots and does not look at them, except that ExpertFetcher checks what
// it reads as the loader does.
// To add a tier of memory: ExpertTier and PlanResidency place experts in it; a unit of its own
// brings them to slots or computes them; ForEachWave runs its experts in waves of their own.
//
// Threads: the thread that runs the rank's passes; any for `traffic`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/op/moe.h"
#include "lib/config/config.h"
#include "lib/config/shard.h"
#include "lib/device/device.h"
#include "lib/experts/expert_fetcher.h"
#include "lib/experts/expert_mover.h"
#include "lib/experts/expert_pages.h"
#include "lib/experts/expert_profile.h"
#include "lib/experts/expert_residency.h"
#include "lib/experts/expert_streamer.h"
#include "lib/experts/pinned_blocks.h"
#include "lib/packing/weight_packer.h"
#include "lib/packing/weight_views.h"

namespace dsv4 {

class ExpertStore {
 public:
  // The next `bytes` of the device memory that was counted for the rank.
  using Place = absl::FunctionRef<std::byte*(int64_t bytes)>;

  // All experts lie in the memory that kernels read.
  ExpertStore() = default;
  // Experts in mapped files, which the CPU's kernels read; see ExpertPages.
  ExpertStore(const ResidencyPlan& mapped, bool locks, ExpertUse* use)
      : pages_(std::make_unique<ExpertPages>(mapped, locks, use)) {}
  // Experts of a device with memory of its own. `pack_stage`: sizes alone. Without Allocate and
  // Open the store answers planning's questions only.
  ExpertStore(const ResidencyPlan& plan, const RankBytes& sizes,
              const WeightPacker::Stage& pack_stage)
      : plan_(plan), sizes_(sizes), pack_stage_(pack_stage) {}

  // For planning.
  // RankBytes::counts.
  static int64_t CountBytes(int64_t blocks, int64_t experts);
  // RankBytes::pack.
  static int64_t PackBytes(const WeightPacker::Stage& stage);
  int64_t device_bytes() const;
  // Whether some experts are read from disk in a pass. It then waits after each gate for the host,
  // so it cannot be recorded, and failures of its reads must be told to other ranks.
  bool reads_disk() const { return plan_.on_disk > 0; }
  // Whether a block may be computed in several waves, which need WaveBuffers.
  bool takes_waves() const { return reads_disk() || plan_.streams > 0; }

  // For the loader: Allocate; then each matrix of each expert is copied to its slot or kept; then
  // Open. Errors of all: OutOfHostMemory, DeviceLost.
  // Allocate takes host memory for experts, and to read them from disk, from `pinned`, which
  // outlives the store.
  absl::Status Allocate(Device* device, PinnedBlocks* pinned, Place place);
  // Whether the expert has a slot, At(id, matrix) of which the loader fills: 0 is w1, 1 w3, 2 w2.
  bool HasSlot(ExpertId id) const { return slots_.SlotOf(id) >= 0; }
  std::byte* At(ExpertId id, int matrix) const {
    return slots_.At(id.block, slots_.SlotOf(id), matrix);
  }
  // Remembers where a matrix of an expert without a slot lies on disk. `view`, of kernels, points
  // to the slot for experts that are fetched.
  void Keep(ExpertId id, int matrix, ExpertSource source, ExpertMatrix* view);
  struct Parts {
    const ModelConfig* config = nullptr;
    const Shards* shards = nullptr;
    int rank = 0;
    ExpertBudgets budgets{};
    const Checkpoint* checkpoint = nullptr;
    WeightPacker packer{};
    // The rank's views of all blocks, with tables on the device; receive the gates' counters.
    std::vector<MoeWeights*> blocks{};
    // For the first blocks, the experts of each token: [vocab, experts_per_token] in host memory.
    std::vector<const int32_t*> by_token{};
    ExpertUse* use = nullptr;  // the first rank counts for all
  };
  // Other errors: those of ExpertFetcher::Open.
  absl::Status Open(Parts parts, Place place);
  // Null: experts are not mapped, or all of them may stay in memory.
  ExpertPages* pages() const { return pages_.get(); }

  // Seconds that a pass of so many rows reads experts from host memory, if it chooses as many of
  // them as it can. REQUIRES: one rank.
  double LongestHostReads(int32_t rows) const;

  // For the pass.
  // Called before the first pass. Experts are streamed in passes of more than `recorded_rows` rows
  // that choose nearly all of them.
  void set_recorded_rows(int32_t recorded_rows);
  // Called before each main pass, when the device is idle: moves experts. Errors: DeviceLost.
  absl::Status BeginStep();
  // Called before a pass that is not recorded. `tokens`: of the main layers, whose experts may
  // follow from them. Errors: DeviceLost.
  absl::Status BeginPass(absl::Span<const int32_t> tokens = {});
  // Called after the pass, which ended with `status`: returns the failure of its reads on any rank,
  // if there was one. All ranks call it. `exchange` makes a status known to all ranks; it returns
  // that of the lowest rank that failed.
  absl::Status EndPass(const absl::Status& status,
                       absl::FunctionRef<absl::Status(const absl::Status&)> exchange);

  // Device memory between the waves of a block.
  struct WaveBuffers {
    int32_t* experts = nullptr;  // [T, K]
    void* outputs = nullptr;     // ExpertFfnParams::outputs
  };
  using Launch = absl::FunctionRef<absl::Status(const ExpertFfnParams&)>;
  // Some or all experts of a block.
  struct Wave {
    ExpertFfnParams ffn{};
    // Whether the outputs of all waves are to be summed up after this one (ExpertWave::kSum).
    bool sums = false;
    ExpertStreamer* streamer = nullptr;  // null: kernels read the experts where they lie
    int32_t block = 0;

    // Calls `launch` for a part of the wave (ExpertPart), or for pieces of it whose experts are on
    // the device.
    absl::Status Run(const ExpertFfnParams& part, Launch launch) const {
      return streamer == nullptr ? launch(part) : streamer->Run(block, part, launch);
    }
  };
  using RunWave = absl::FunctionRef<absl::Status(const Wave& wave)>;
  // Called after the gate of a block, with its whole operator. Calls `run` for each wave; all ranks
  // have the same waves. Where reads_disk(), waits for the device first. Errors: those of `run`;
  // DeviceLost.
  absl::Status ForEachWave(int32_t block, const ExpertFfnParams& ffn, const WaveBuffers& buffers,
                           RunWave run);
  // Calls `run` for each kind of wave that a pass may have, so that the device loads their kernels.
  absl::Status ForEachKind(const ExpertFfnParams& ffn, const WaveBuffers& buffers,
                           RunWave run) const;

  ExpertTraffic traffic() const;

 private:
  absl::Status RunAtOnce(int32_t block, const ExpertFfnParams& ffn, const WaveBuffers& buffers,
                         RunWave run) const;
  Wave FirstWave(int32_t block, const ExpertFfnParams& ffn, const WaveBuffers& buffers) const;
  bool Streams(int32_t rows) const { return streamer_ != nullptr && rows >= stream_rows_; }

  ResidencyPlan plan_;  // of a device with memory of its own
  RankBytes sizes_;
  WeightPacker::Stage pack_stage_;
  absl::Span<std::byte> stage_;  // pinned, if some experts lie on disk
  ExpertSlots slots_;
  std::vector<std::array<ExpertSource, 3>> sources_;  // [blocks * experts], until Open
  ExpertReadTimes read_times_;                        // of the first rank
  double share_of_bytes_ = 0;                         // the first rank's, of all ranks' bytes
  int32_t experts_per_token_ = 0;
  int32_t stream_rows_ = 0;             // experts are streamed in passes of at least so many rows
  std::unique_ptr<ExpertMover> mover_;  // null: no expert lies on the host
  std::unique_ptr<ExpertFetcher> fetcher_;    // null: none lies on disk
  std::unique_ptr<ExpertStreamer> streamer_;  // null: none is streamed
  std::unique_ptr<ExpertPages> pages_;
};

}  // namespace dsv4
