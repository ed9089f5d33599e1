// SPDX-License-Identifier: Apache-2.0
// expert_ffn: y = sum of the row's K routed MXFP4 experts, in their order, and the shared FP8
// expert; an expert is w2 . act_quant(silu(clamp(w1 x)) * clamp(w3 x) * weight). Contract:
// kernels/op/moe.h; x quantised rows, weights packed (packed_layout.h). An expert outside [0, E) is
// none: a row that is padding may have such. Roofline: each distinct expert's 3 D I (1/2 + 1/32)
// bytes, the shared expert's 3 D I, and 6 D I (K + 1) flops a row: bound by memory up to hundreds
// of rows. Plan: inner_product.cuh's. Up to 48 rows a block takes an expert's tile of w1 and w3
// (then of w2) and holds it while all the expert's rows pass; up to 8 rows each block finds its
// rows itself. More rows are grouped by expert, 64 to a block. The hidden values go through memory
// as bf16 and are quantised where they are read (few rows) or by a kernel of their own; outputs of
// experts go through memory as the bf16 numbers that they are rounded to, and are summed last. Edge
// cases: experts without rows are not read; a row may name an expert twice.
#include "kernels/sm12x/expert_ffn.cuh"

#include <algorithm>

#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/quantize_kernel.cuh"
#include "lib/base/checked_math.h"

namespace dsv4 {
namespace {

using namespace sm12x;

constexpr int kUngroupedRows = 8;
constexpr int kSplitExpertRows = 48;
static_assert(kSplitExpertRows <= kGroupRows);

// Parts of the workspace, each at a multiple of 64 bytes.
struct Plan {
  explicit Plan(const ExpertFfnParams& p, std::byte* base)
      : pairs(int64_t{p.rows} * p.experts_per_token), slots(pairs + p.rows) {
    work.groups.count = Take<int32_t>(base, 1);
    work.groups.pair_of = Take<int32_t>(base, pairs);
    work.groups.groups = Take<RowGroup>(base, MaxRowGroups(pairs, p.expert_count));
    work.hidden = Take<uint16_t>(base, slots * p.inter);
    work.quantised = Take<uint8_t>(base, slots * QuantizedRowBytes(p.inter));
    work.outputs = Take<uint16_t>(base, slots * p.hidden);
  }
  template <class T>
  T* Take(std::byte* base, int64_t count) {
    T* at = base == nullptr ? nullptr : reinterpret_cast<T*>(base + bytes);
    bytes += RoundUp(count * static_cast<int64_t>(sizeof(T)), int64_t{64});
    return at;
  }
  int64_t pairs, slots;
  int64_t bytes = 0;
  FfnWorkspace work{};
};

absl::Status Supports(const ExpertFfnParams& p) {
  if (!TiledFits<Fp8Chains>(std::max(p.hidden, p.inter))) {
    return Unsupported("hidden ", p.hidden, ", inter ", p.inter, ": too large");
  }
  return p.expert_count <= 8192 ? absl::OkStatus()
                                : Unsupported(p.expert_count, " experts, at most 8192");
}

int64_t Workspace(const ExpertFfnParams& p, int) { return Plan(p, nullptr).bytes; }

unsigned Ceil(int64_t a, int64_t b) { return static_cast<unsigned>(CeilDiv(a, b)); }

int64_t DownSharedBytes(const SplitPlan& plan, int64_t inter) {
  return plan.shared_bytes<Fp8Chains, 1>() + kSplitRows * StagedRowBytes(inter);
}

bool SplitFitsBoth(const ExpertFfnParams& p) {
  // Beside the list of pairs.
  return SplitPlanOf(p.hidden).shared_bytes<Fp8Chains, 2>() <= kDefaultSharedBytes - 4096 &&
         DownSharedBytes(SplitPlanOf(p.inter), p.inter) <= kDefaultSharedBytes - 4096;
}

void LaunchSplit(cudaStream_t stream, const ExpertFfnParams& p, const FfnWorkspace& work,
                 int64_t jobs, bool grouped, bool with_shared) {
  const SplitPlan up = SplitPlanOf(p.hidden), down = SplitPlanOf(p.inter);
  const int64_t all_jobs = jobs + (with_shared ? 1 : 0);
  const auto launch = [&](const SplitPlan& split, int64_t width, int64_t shared_bytes,
                          auto* kernel) {
    const int64_t sets = CeilDiv<int64_t>(width / kTileRows, split.tiles());
    const int steps = SplitSteps(sets * all_jobs);
    const dim3 blocks(Ceil(sets, with_shared ? SharedSteps(steps) : steps),
                      static_cast<unsigned>(all_jobs));
    LaunchOverlapped(stream, blocks, kSplitThreads, shared_bytes, kernel, p, work, split, steps,
                     grouped, with_shared);
  };
  launch(up, p.inter, up.shared_bytes<Fp8Chains, 2>(), expert_up_split_kernel);
  launch(down, p.hidden, DownSharedBytes(down, p.inter), expert_down_split_kernel);
}

// Slots [first, first + count) are the launch's.
template <bool kShared>
void LaunchTiled(cudaStream_t stream, const ExpertFfnParams& p, const FfnWorkspace& work,
                 int64_t groups, int64_t first, int64_t count) {
  using Chains = TiledChains<kShared>;
  const auto blocks_y = static_cast<unsigned>(groups);
  LaunchOverlapped(stream, dim3(Ceil(p.inter, kTiledWeightRows), blocks_y), kTiledThreads,
                   TiledSharedBytes<Chains>(p.hidden), expert_up_tiled_kernel<kShared>, p, work);
  LaunchQuantize(stream, work.hidden + first * p.inter, count, p.inter,
                 work.quantised + first * QuantizedRowBytes(p.inter));
  LaunchOverlapped(stream, dim3(Ceil(p.hidden, kTiledWeightRows), blocks_y), kTiledThreads,
                   TiledSharedBytes<Chains>(p.inter), expert_down_tiled_kernel<kShared>, p, work);
}

void Launch(const LaunchContext& context, const ExpertFfnParams& p) {
  const cudaStream_t stream = CudaStreamOf(context);
  const Plan plan(p, context.workspace);
  const bool split = p.rows <= kSplitExpertRows && SplitFitsBoth(p);
  const bool grouped = !split || p.rows > kUngroupedRows || plan.pairs > kListedPairs;
  const bool shared_apart = !split || p.rows > kSplitSharedRows;
  if (grouped) {
    LaunchOverlapped(stream, dim3(static_cast<unsigned>(p.expert_count)), kGroupThreads,
                     p.expert_count * static_cast<int64_t>(sizeof(int32_t)), group_rows_kernel,
                     p.experts, static_cast<int>(plan.pairs), p.expert_count, plan.work.groups);
  }
  const int64_t groups = MaxRowGroups(plan.pairs, p.expert_count);
  if (shared_apart) {
    LaunchTiled<true>(stream, p, plan.work, CeilDiv<int64_t>(p.rows, kTiledRows), plan.pairs,
                      p.rows);
  }
  if (split) {
    LaunchSplit(stream, p, plan.work, grouped ? groups : plan.pairs, grouped, !shared_apart);
  } else {
    LaunchTiled<false>(stream, p, plan.work, groups, 0, plan.pairs);
  }
  LaunchOverlapped(stream, dim3(Ceil(p.hidden, kSumThreads * 8), static_cast<unsigned>(p.rows)),
                   kSumThreads, 0, sum_experts_kernel, p, plan.work);
}

}  // namespace

constinit const KernelEntry kSm12xExpertFfn =
    MakeEntry<ExpertFfnParams, &Launch, &Supports, &Workspace>(
        "sm12x.expert_ffn", Backend::kCuda, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
