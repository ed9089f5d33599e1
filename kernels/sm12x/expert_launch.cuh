// SPDX-License-Identifier: Apache-2.0
// The common part of the launchers of expert_ffn.cuh's kernels: expert_ffn.cu, and
// expert_formats.cu for experts in other formats than MXFP4.
#pragma once

#include <algorithm>

#include "kernels/registry/kernel_entry.h"
#include "kernels/sm12x/block_products.h"
#include "kernels/sm12x/expert_ffn.cuh"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "lib/base/checked_math.h"

namespace dsv4::sm12x {

inline unsigned Blocks(int64_t a, int64_t b) { return static_cast<unsigned>(CeilDiv(a, b)); }

// The number of blocks among which the tiles of few rows are divided.
inline int64_t SplitBlocks(const LaunchContext& context) {
  return int64_t{2} * context.multiprocessors;
}

inline int64_t DownSharedBytes(const SplitPlan& plan, int64_t inter) {
  return plan.shared_bytes<Fp8Slices, 1>() + kSplitRows * StagedRowBytes(inter);
}

// Whether weights are streamed through registers, once for all rows of a group.
inline bool Splits(const ExpertFfnParams& p) {
  return p.format != ExpertFormat::kBlocks && p.rows <= kSplitGroupRows &&
         SplitFits<Fp8Slices, 2>(p.hidden) &&
         DownSharedBytes(SplitPlanOf(p.inter), p.inter) <= kMaxSharedBytes - 4096;
}

// The kinds of groups of a launch.
inline RowGroups GroupsOf(const ExpertFfnParams& p) {
  if (p.format == ExpertFormat::kBlocks) {
    return {.kinds = p.rows > kBlockRows ? 2 : 1, .rows = {kBlockRows, kBlockGroupRows}};
  }
  if (Splits(p)) return {.kinds = 1, .rows = {kSplitGroupRows}};
  return {.kinds = 3, .rows = {kSmallGroupRows, kMiddleGroupRows, kLargeGroupRows}};
}

// Parts of the workspace, each at a multiple of 64 bytes.
struct ExpertPlan {
  ExpertPlan(const ExpertFfnParams& p, std::byte* base)
      : pairs(int64_t{p.rows} * p.experts_per_token), slots(pairs + p.rows) {
    work.groups = GroupsOf(p);
    work.groups.counts = Take<int32_t>(base, kGroupKinds);
    work.groups.pair_of = Take<int32_t>(base, pairs);
    for (int kind = 0; kind < work.groups.kinds; ++kind) {
      most_groups[kind] = work.groups.MostGroups(kind, pairs, p.expert_count);
      work.groups.groups[kind] = Take<RowGroup>(base, most_groups[kind]);
    }
    work.hidden = p.part == ExpertPart::kWhole ? Take<uint16_t>(base, slots * p.inter)
                                               : static_cast<uint16_t*>(p.products);
    const bool blocks = p.format == ExpertFormat::kBlocks;
    if (blocks && p.part != ExpertPart::kOutputs) {
      work.gate = Take<uint16_t>(base, slots * p.inter);
      work.up = Take<uint16_t>(base, slots * p.inter);
    }
    if (blocks) {
      const int64_t of_hidden = p.rows > kBlockRows ? RoundedBytes(slots, p.inter) : 0;
      rounded = Take<std::byte>(base, std::max(RoundedBytes(p.rows, p.hidden), of_hidden));
    }
    if (p.part == ExpertPart::kProducts) return;
    if (!blocks) work.quantised = Take<uint8_t>(base, slots * QuantizedRowBytes(p.inter));
    work.outputs = p.wave == ExpertWave::kAll ? Take<uint16_t>(base, slots * p.hidden)
                                              : static_cast<uint16_t*>(p.outputs);
  }
  template <class T>
  T* Take(std::byte* base, int64_t count) {
    T* at = base == nullptr ? nullptr : reinterpret_cast<T*>(base + bytes);
    bytes += RoundUp(count * static_cast<int64_t>(sizeof(T)), int64_t{64});
    return at;
  }
  int64_t pairs, slots;
  int64_t most_groups[kGroupKinds] = {};
  int64_t bytes = 0;
  std::byte* rounded = nullptr;  // rows of block formats, by LaunchRounding
  FfnWorkspace work{};
};

// Enqueues both halves for few rows. Routed, Shared: KSlices of the two kinds of experts.
template <class Routed, class Shared>
void LaunchSplit(const LaunchContext& context, const ExpertFfnParams& p, const FfnWorkspace& work,
                 int64_t groups) {
  const SplitPlan up = SplitPlanOf(p.hidden), down = SplitPlanOf(p.inter);
  const int64_t jobs = groups + 1;  // and the shared expert
  const cudaStream_t stream = CudaStreamOf(context);
  const auto launch = [&](const SplitPlan& split, int64_t width, int64_t shared_bytes, bool overlap,
                          auto* kernel) {
    const int64_t sets = CeilDiv<int64_t>(width / kTileRows, split.tiles());
    const int steps = SplitSteps(sets * jobs, SplitBlocks(context));
    const dim3 blocks(Blocks(sets, SharedSteps(steps)), static_cast<unsigned>(jobs));
    if (overlap) {
      LaunchOverlapped(stream, blocks, kSplitThreads, shared_bytes, kernel, p, work, split, steps);
    } else {
      LaunchInOrder(stream, blocks, kSplitThreads, shared_bytes, kernel, p, work, split, steps);
    }
  };
  if (p.part != ExpertPart::kOutputs) {
    launch(up, p.inter, up.shared_bytes<Fp8Slices, 2>(), true,
           expert_up_split_kernel<Routed, Shared>);
  }
  if (p.part != ExpertPart::kProducts) {
    // The kernel reads the groups without a wait. So a kernel of the first half must run between it
    // and the one that writes them; else the launch must not overlap.
    launch(down, p.hidden, DownSharedBytes(down, p.inter), p.part == ExpertPart::kWhole,
           expert_down_split_kernel<Routed, Shared>);
  }
}

// Enqueues one half for more rows.
template <class Routed, class Shared, bool kUp>
void LaunchGemms(const LaunchContext& context, const ExpertFfnParams& p, const FfnWorkspace& work) {
  const dim3 blocks(static_cast<unsigned>(context.multiprocessors));
  const auto shared = [&]<class Shape>(std::type_identity<Shape>) {
    LaunchOverlapped(CudaStreamOf(context), blocks, Shape::kThreads, Shape::kSharedBytes,
                     expert_shared_gemm_kernel<Shape, kUp>, p, work);
  };
  if (p.wave == ExpertWave::kNext) {
    // An earlier wave computed the shared expert.
  } else if (p.rows <= FewShared<Shared>::kRows) {
    shared(std::type_identity<FewShared<Shared>>());
  } else {
    shared(std::type_identity<ManyShared<Shared>>());
  }
  LaunchOverlapped(CudaStreamOf(context), blocks, RoutedShapes<Routed>::kThreads,
                   RoutedShapes<Routed>::kSharedBytes, expert_gemm_kernel<Routed, kUp>, p, work);
}

// Both halves of experts in block formats, or the half that p.part names.
void LaunchBlockExperts(const LaunchContext& context, const ExpertFfnParams& p,
                        const ExpertPlan& plan);

// LaunchSplit and LaunchGemms for experts in other formats than MXFP4.
void LaunchOtherSplit(const LaunchContext& context, const ExpertFfnParams& p,
                      const FfnWorkspace& work, int64_t groups);
void LaunchOtherGemms(const LaunchContext& context, const ExpertFfnParams& p,
                      const FfnWorkspace& work, bool up);

}  // namespace dsv4::sm12x
