// SPDX-License-Identifier: Apache-2.0
// expert_ffn: y = the shared FP8 expert plus the sum of the row's K routed experts in their order.
// An expert is w2 . act_quant(silu(clamp(w1 x)) * clamp(w3 x) * weight).
//
// Contract: kernels/op/moe.h; x quantised rows, weights packed (packed_layout.h); D and I up to
// 16384.
//
// Roofline: 3 D I (1/2 + 1/32) bytes for each distinct MXFP4 expert, 3 D I for the shared expert;
// 6 D I (K + 1) flops a row. Memory-bound up to hundreds of rows. Measurements: docs/kernels.md.
//
// Plan:
// - One row, where a GPU has enough multiprocessors: one kernel whose blocks hand hidden values to
//   each other (expert_one_row.cuh).
// - Up to 8 rows: two kernels whose blocks have equal shares of all weights (expert_few_rows.cuh).
// - 9 to 16 rows: pairs of row and expert are grouped by expert. Blocks stream tiles of w1 and w3,
//   then of w2, through registers, past eight rows at a time (SplitProducts).
// - More rows: pairs are grouped, too. The GEMM (gemm.cuh) has items of one group by some tiles.
//   One launch takes all groups, of up to 8, 32 and 64 rows; another takes the shared expert.
// - FP8 and NVFP4 experts are grouped for any number of rows (expert_formats.cu).
// - Experts in block formats: expert_blocks.cu.
// - Hidden values go through memory as bf16. They are quantised by the kernel that reads them, or
//   by one of their own.
// - Outputs of experts are rounded to bf16, go through memory, and are summed last.
//
// Edge cases: experts without rows are not read; a row may name an expert twice; an expert outside
// [0, E), as padding rows have, contributes nothing.
#include "kernels/sm12x/expert_one_row.cuh"

#include <algorithm>

#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/expert_launch.cuh"
#include "kernels/sm12x/quantize_kernel.cuh"

namespace dsv4 {
namespace sm12x::expert_ffn {

using namespace sm12x;

constexpr int64_t kMaxExperts = 8192;

// Writes those of pairs [0, pair_count) for which `matches(pair)` holds to list[0 ..), in ascending
// order. Returns their number in every thread. All kGroupThreads threads of a block call it; it
// ends with a barrier. `counts` is shared memory of one number a warp.
template <class Matches>
__device__ __forceinline__ int ListPairs(int pair_count, int32_t* list, int32_t* counts,
                                         Matches&& matches) {
  constexpr int kWarps = kGroupThreads / 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Each warp has a stretch of pairs: it first counts, then writes.
  const int stretch = (pair_count + kGroupThreads - 1) / kGroupThreads * 32;
  const int begin = warp * stretch, end = min(begin + stretch, pair_count);
  int found = 0;
  for (int base = begin; base < end; base += 32) {
    const bool match = base + lane < end && matches(base + lane);
    found += __popc(__ballot_sync(0xffffffffu, match));
  }
  if (lane == 0) counts[warp] = found;
  __syncthreads();
  int place = 0, total = 0;
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) place += counts[i];
    total += counts[i];
  }
  for (int base = begin; base < end; base += 32) {
    const bool match = base + lane < end && matches(base + lane);
    const uint32_t mask = __ballot_sync(0xffffffffu, match);
    if (match) list[place + __popc(mask & ((1u << lane) - 1))] = base + lane;
    place += __popc(mask);
  }
  __syncthreads();
  return total;
}

// One block for each expert. Each block counts all experts' pairs to find where its own begin.
__global__ void __launch_bounds__(kGroupThreads)
    group_rows_kernel(const int32_t* experts, int pair_count, int first_expert, int end_expert,
                      int expert_count, RowGroups out) {
  auto* const histogram = DynamicShared<int32_t>();  // [expert_count]
  __shared__ int32_t begin, before[kGroupKinds], total[kGroupKinds], counts[kGroupThreads / 32];
  BeginAfterPredecessors();
  const int me = static_cast<int>(blockIdx.x), last = out.kinds - 1;
  for (int e = threadIdx.x; e < expert_count; e += kGroupThreads) histogram[e] = 0;
  if (threadIdx.x == 0) begin = 0;
  if (threadIdx.x < kGroupKinds) before[threadIdx.x] = total[threadIdx.x] = 0;
  __syncthreads();
  for (int pair = threadIdx.x; pair < pair_count; pair += kGroupThreads) {
    const int32_t e = experts[pair];
    if (e >= first_expert && e < end_expert) atomicAdd(&histogram[e], 1);
  }
  __syncthreads();
  for (int e = threadIdx.x; e < expert_count; e += kGroupThreads) {
    const int32_t count = histogram[e], full = count / out.Largest(), rest = count % out.Largest();
    if (count == 0) continue;
    const int32_t kind = out.KindOfRest(rest);
    if (full > 0) atomicAdd(&total[last], full);
    if (rest > 0) atomicAdd(&total[kind], 1);
    if (e >= me) continue;
    atomicAdd(&begin, count);
    if (full > 0) atomicAdd(&before[last], full);
    if (rest > 0) atomicAdd(&before[kind], 1);
  }
  __syncthreads();
  if (me == 0 && threadIdx.x < out.kinds) out.counts[threadIdx.x] = total[threadIdx.x];
  if (histogram[me] == 0) return;
  const int count = ListPairs(pair_count, out.pair_of + begin, counts,
                              [&](int pair) { return experts[pair] == me; });
  const int most = out.Largest(), full = count / most, rest = count % most;
  for (int i = threadIdx.x; i < full; i += kGroupThreads) {
    out.Groups(last)[before[last] + i] = {me, begin + i * most, most};
  }
  if (rest > 0 && threadIdx.x == 0) {
    const int kind = out.KindOfRest(rest);
    out.Groups(kind)[before[kind] + (kind == last ? full : 0)] = {me, begin + full * most, rest};
  }
}

constexpr int kSumThreads = 128;

// y = shared + (routed experts in their order), in f32, then rounded. A thread has eight columns.
__global__ void __launch_bounds__(kSumThreads)
    sum_experts_kernel(const __grid_constant__ ExpertFfnParams p,
                       const __grid_constant__ FfnWorkspace work) {
  BeginAfterPredecessors();
  const int64_t row = blockIdx.x;
  const int64_t column = (int64_t{blockIdx.y} * kSumThreads + threadIdx.x) * 8;
  if (column >= p.hidden) return;
  const int k = p.experts_per_token;
  float sum[8] = {};
  for (int i = 0; i < k; ++i) {
    const int64_t pair = row * k + i;
    if (static_cast<uint32_t>(p.experts[pair]) >= static_cast<uint32_t>(p.expert_count)) continue;
    float v[8];
    LoadBf16x8(work.outputs + pair * p.hidden + column, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[j] += v[j];
  }
  float v[8];
  LoadBf16x8(work.outputs + (int64_t{p.rows} * k + row) * p.hidden + column, v);
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] += sum[j];
  StoreBf16x8(v, static_cast<uint16_t*>(p.y) + row * p.hidden + column);
}

absl::Status Supports(const ExpertFfnParams& p) {
  if (p.expert_count > kMaxExperts) {
    return Unsupported(p.expert_count, " experts, at most ", kMaxExperts);
  }
  // A row of x is quantised for all experts, or for none.
  const bool blocks = p.format == ExpertFormat::kBlocks;
  for (const Fp8Weight* w : {&p.shared_w1, &p.shared_w3, &p.shared_w2}) {
    if (w->data != nullptr && w->in_blocks() != blocks) {
      return Unsupported("experts in block formats beside others");
    }
  }
  return absl::OkStatus();
}

int64_t Workspace(const ExpertFfnParams& p, int) { return ExpertPlan(p, nullptr).bytes; }

__global__ void __launch_bounds__(kProgramThreads, 1)
    expert_one_row_kernel(const __grid_constant__ ExpertPhase phase, std::byte* marked) {
  LaunchWords words;
  RunExperts(phase, DynamicShared<std::byte>(), [&]() -> const LaunchWords& {
    words.Begin(marked);
    return words;
  });
  // Block 0 has read hidden values of all blocks.
  words.End();
}

// Enqueues both halves for few rows. Returns false if they do not fit.
template <bool kOneRow>
bool LaunchFewRows(const LaunchContext& context, const ExpertFfnParams& p,
                   const FfnWorkspace& work) {
  constexpr int64_t kStaticBytes = 8192;
  const int64_t up_bytes = FewUpBytes<kOneRow>(p.hidden);
  const int64_t down_bytes = FewDownBytes<kOneRow>(p.inter);
  if (!FewRowsFit(p.rows, p.experts_per_token) ||
      std::max(up_bytes, down_bytes) > kMaxSharedBytes - kStaticBytes) {
    return false;
  }
  const cudaStream_t stream = CudaStreamOf(context);
  const int64_t one_row_blocks = OneRowBlocks(p, context.multiprocessors);
  if (kOneRow && context.marked != nullptr && one_row_blocks > 0) {
    LaunchOverlapped(stream, dim3(static_cast<unsigned>(one_row_blocks)), kProgramThreads,
                     OneRowSharedBytes(p.hidden, p.inter), expert_one_row_kernel,
                     ExpertPhase{.p = p, .hidden_words = 0, .y_words = kNoWords}, context.marked);
    return true;
  }
  if (p.part != ExpertPart::kOutputs) {
    const int64_t shares = (int64_t{p.rows} * p.experts_per_token + 1) * (p.inter / kTileRows);
    const int64_t blocks = std::min(shares, int64_t{kUpBlocks<kOneRow>} * context.multiprocessors);
    LaunchOverlapped(stream, dim3(static_cast<unsigned>(blocks)), kUpThreads<kOneRow>, up_bytes,
                     expert_up_few_kernel<kOneRow>, p, work,
                     FewPlanOf(p.hidden, kUpThreads<kOneRow>));
  }
  if (p.part == ExpertPart::kProducts) return true;
  if (!kOneRow) {
    LaunchQuantize(stream, work.hidden, int64_t{p.rows} * (p.experts_per_token + 1), p.inter,
                   work.quantised);
  }
  LaunchOverlapped(stream, dim3(static_cast<unsigned>(p.hidden / kTileRows)), kFewThreads,
                   down_bytes, expert_down_few_kernel<kOneRow>, p, work, FewPlanOf(p.inter));
  return true;
}

// Rows are along x, because a grid has at most 65,535 blocks along y.
void LaunchSum(cudaStream_t stream, const ExpertFfnParams& p, const FfnWorkspace& work) {
  LaunchOverlapped(stream, dim3(static_cast<unsigned>(p.rows), Blocks(p.hidden, kSumThreads * 8)),
                   kSumThreads, 0, sum_experts_kernel, p, work);
}

void Launch(const LaunchContext& context, const ExpertFfnParams& p) {
  const cudaStream_t stream = CudaStreamOf(context);
  const ExpertPlan plan(p, context.workspace);
  const FfnWorkspace& work = plan.work;
  if (p.wave == ExpertWave::kSum) {
    if (p.part != ExpertPart::kProducts) LaunchSum(stream, p, work);
    return;
  }
  const bool mxfp4 = p.format == ExpertFormat::kMxfp4;
  if (mxfp4 && p.wave == ExpertWave::kAll &&
      (p.rows == 1 ? LaunchFewRows<true>(context, p, work)
                   : LaunchFewRows<false>(context, p, work))) {
    return;
  }
  const bool split = Splits(p);
  LaunchOverlapped(stream, dim3(static_cast<unsigned>(p.expert_count)), kGroupThreads,
                   p.expert_count * static_cast<int64_t>(sizeof(int32_t)), group_rows_kernel,
                   p.experts, static_cast<int>(plan.pairs), std::max(p.first_expert, 0),
                   std::min(p.end_expert, p.expert_count), p.expert_count, work.groups);
  if (p.format == ExpertFormat::kBlocks) {
    LaunchBlockExperts(context, p, plan);
    if (p.part != ExpertPart::kProducts && p.wave == ExpertWave::kAll) LaunchSum(stream, p, work);
    return;
  }
  const auto launch = [&]<bool kUp>(std::bool_constant<kUp>) {
    mxfp4 ? LaunchGemms<Fp4Slices, Fp8Slices, kUp>(context, p, work)
          : LaunchOtherGemms(context, p, work, kUp);
  };
  if (split && mxfp4) {
    LaunchSplit<Fp4Slices, Fp8Slices>(context, p, work, plan.most_groups[0]);
  } else if (split) {
    LaunchOtherSplit(context, p, work, plan.most_groups[0]);
  } else if (p.part != ExpertPart::kOutputs) {
    launch(std::true_type());
  }
  if (p.part == ExpertPart::kProducts) return;
  if (!split) {
    LaunchQuantize(stream, work.hidden, plan.slots, p.inter, work.quantised);
    launch(std::false_type());
  }
  if (p.wave == ExpertWave::kAll) LaunchSum(stream, p, work);
}

}  // namespace sm12x::expert_ffn
using namespace sm12x::expert_ffn;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xExpertFfn =
    MakeSm12xEntry<ExpertFfnParams, &Launch, &Supports, &Workspace>(DSV4_SM12X_SET ".expert_ffn",
                                                                    2);

}  // namespace dsv4
