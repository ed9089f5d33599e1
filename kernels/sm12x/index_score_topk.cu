// SPDX-License-Identifier: Apache-2.0
// index_score_topk: score(g) = sum_h w[h] max(0, q[h] . key[g]) of all visible groups, and the
// groups with the topk highest scores, ascending. Contract: kernels/op/attention.h; keys index_fp4,
// at most 128 heads. Roofline: 68 bytes and 256 H flops a group and row: latency at short contexts,
// then tensor cores. Plan: rows that see no more groups than topk are not scored. Else three
// kernels, for as many rows at a time as the workspace has scores for:
// - scores: blocks of 8 warps share a row's groups; a warp takes 32, which are the rows of two
//   m16n8k16 tiles, heads their columns. A lane loads 16 bytes of a key, one run of 32 elements,
//   and makes its fragments of them in registers; queries lie in shared memory in fragment order.
//   The order of K within a run is what the nibbles give without moving; queries are permuted
//   alike.
// - slices: where a row sees more than 16,384 groups, a block selects the best topk of each slice
// of
//   so many.
// - selection: a block selects from the row's groups, or from the slices' best.
// A selection holds its keys in registers, 16 a thread, and finds the topk-th highest bit by bit,
// counting; what is above it goes out in ascending order, then as many of its equals as there is
// room for, lowest first: whatever the order of events, the same result.
// Edge cases: padding rows; NaN scores come last; -0 equals 0.
#include <algorithm>

#include "kernels/op/attention.h"
#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/row_math.cuh"

namespace dsv4 {
namespace {

using namespace sm12x;  // NOLINT: the device code of this file

constexpr int kMaxHeads = 128;
constexpr int kScoreWarps = 8;
constexpr int kWarpGroups = 32;
constexpr int kBlockGroups = kScoreWarps * kWarpGroups;
constexpr int64_t kScoreBlocks = 376;  // that share a row at most
constexpr int64_t kGroupsPerBlock = kGroupBlockTokens / kCsaRatio;
constexpr int kSelectThreads = 1024;
constexpr int kSelectItems = 16;
constexpr int kSlice = kSelectThreads * kSelectItems;  // groups
constexpr int64_t kScoreBytes = int64_t{64} << 20;

struct TopkArgs {
  IndexScoreTopkParams p;
  StepRows step;
  int64_t first_row;  // of these rows of the step
  float* scores;      // [rows, score_stride]
  int64_t score_stride;
  uint2* best;  // [rows, slices, topk]: ordered score, group; 0, 0 behind the last
  int slices;
};

__device__ __forceinline__ int64_t VisibleOf(const TopkArgs& args, int64_t t) {
  return args.step.sequence_of[t] < 0 ? 0 : VisibleGroups(args.step.positions[t], kCsaRatio);
}

// Two e2m1 codes, in the low bits of each half, shifted right by `shift`, as bf16 times 2^-126; the
// two products make that good and apply the scale.
__device__ __forceinline__ uint32_t WidenCodes(uint32_t word, int shift, uint32_t factor,
                                               uint32_t more) {
  const uint32_t codes = word >> shift;
  const uint32_t small = (codes << 6 & 0x01c001c0u) | (codes << 12 & 0x80008000u);
  return MultiplyBf16x2(MultiplyBf16x2(small, factor), more);
}

// 16 bytes of a key, one run, as the registers of 8 K = 16 steps: [step][k low, k high].
__device__ __forceinline__ void WidenKey(uint4 codes, uint32_t scale, uint32_t (&out)[8][2]) {
  // 2^126 2^(scale - 127) in two bf16 factors.
  const uint32_t first = min(scale, 128u) - 1, rest = max(scale, 128u) - 128;
  const uint32_t factor = (first + 127) * 0x00800080u, more = (rest + 127) * 0x00800080u;
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      out[2 * w + k / 2][k % 2] = WidenCodes(words[w], 4 * k, factor, more);
    }
  }
}

// Queries in fragment order: [tile of 8 heads][two steps][lane]. Element 8 w + k of a run meets
// element 8 w + k + 4, as WidenKey pairs them.
__device__ __forceinline__ void StageQueries(const uint16_t* q, int heads, int tiles,
                                             uint4 (*staged)[4][32]) {
  for (int i = static_cast<int>(threadIdx.x); i < tiles * 128; i += kScoreWarps * 32) {
    const int head = i / 16, piece = i % 16;  // eight elements: word w of run t
    const int t = piece / 4, w = piece % 4;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (head < heads) v = *reinterpret_cast<const uint4*>(q + head * kIndexKeyElements + piece * 8);
    staged[head / 8][w][head % 8 * 4 + t] =
        make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
                   __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632));
  }
}

// Block (blocks that share a row, row).
__global__ void __launch_bounds__(kScoreWarps * 32)
    index_score_kernel(const __grid_constant__ TopkArgs args) {
  __shared__ uint4 queries[kMaxHeads / 8][4][32];
  __shared__ float2 head_weights[kMaxHeads / 2];
  const IndexScoreTopkParams& p = args.p;
  const int64_t t = args.first_row + blockIdx.y;
  const int64_t visible = VisibleOf(args, t);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kBlockGroups;
  if (visible <= p.topk || first >= visible) return;
  const int tiles = (p.heads + 7) / 8;
  StageQueries(static_cast<const uint16_t*>(p.q) + t * p.heads * kIndexKeyElements, p.heads, tiles,
               queries);
  for (int h = static_cast<int>(threadIdx.x); h < tiles * 8; h += kScoreWarps * 32) {
    const float weight =
        h < p.heads ? Bf16(static_cast<const uint16_t*>(p.weights)[t * p.heads + h]) : 0;
    reinterpret_cast<float*>(head_weights)[h] = h < p.heads ? __fmul_rn(weight, p.weight_scale) : 0;
  }
  __syncthreads();

  const int32_t* blocks = args.step.sequences[args.step.sequence_of[t]].group_blocks;
  float* scores = args.scores + blockIdx.y * args.score_stride;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, quad = lane % 4;
  for (int64_t begin = first + warp * kWarpGroups; begin < visible;
       begin += static_cast<int64_t>(gridDim.x) * kBlockGroups) {
    // 32 groups lie in one block.
    const int32_t block = blocks[begin / kGroupsPerBlock];
    uint4 codes[4];
    uint32_t scales[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {  // group begin + 8 r + g
      const int64_t slot = begin % kGroupsPerBlock + r * 8 + g;
      codes[r] = make_uint4(0, 0, 0, 0);
      scales[r] = 127;
      if (begin + r * 8 + g < visible) {
        codes[r] = *reinterpret_cast<const uint4*>(p.keys.Row(block, slot) + quad * 16);
        scales[r] = static_cast<uint32_t>(p.keys.Scales(block, slot)[quad]);
      }
    }
    uint32_t keys[4][8][2];
#pragma unroll
    for (int r = 0; r < 4; ++r) WidenKey(codes[r], scales[r], keys[r]);
    float sums[4] = {};
    for (int tile = 0; tile < tiles; ++tile) {
      float dots[2][4] = {};
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const uint4 b = queries[tile][w][lane];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const auto& low = keys[2 * m];
          const auto& high = keys[2 * m + 1];
          MmaBf16(dots[m], low[2 * w][0], high[2 * w][0], low[2 * w][1], high[2 * w][1], b.x, b.y);
          MmaBf16(dots[m], low[2 * w + 1][0], high[2 * w + 1][0], low[2 * w + 1][1],
                  high[2 * w + 1][1], b.z, b.w);
        }
      }
      const float2 weight = head_weights[tile * 4 + quad];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        // A NaN must stay one: fmaxf would make it 0.
        const float x = dots[r / 2][r % 2 * 2], y = dots[r / 2][r % 2 * 2 + 1];
        sums[r] = __fmaf_rn(weight.x, x < 0 ? 0.0f : x, sums[r]);
        sums[r] = __fmaf_rn(weight.y, y < 0 ? 0.0f : y, sums[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      sums[r] = __fadd_rn(sums[r], __shfl_xor_sync(kAllLanes, sums[r], 1));
      sums[r] = __fadd_rn(sums[r], __shfl_xor_sync(kAllLanes, sums[r], 2));
      const int64_t group = begin + r * 8 + g;
      if (quad == 0 && group < visible) scores[group] = sums[r];
    }
  }
}

// Scores as integers of the same order, above 0; NaN as minus infinity.
__device__ __forceinline__ uint32_t OrderedScore(float score) {
  if (isnan(score)) score = -INFINITY;
  const uint32_t bits = __float_as_uint(__fadd_rn(score, 0.0f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Sums over the block, of up to 1024 threads; `scratch` is free to be used again after the next
// barrier.
__device__ __forceinline__ uint32_t BlockTotal(uint32_t value, uint32_t* scratch) {
  const uint32_t warp_total = __reduce_add_sync(kAllLanes, value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = warp_total;
  __syncthreads();
  return __reduce_add_sync(kAllLanes, scratch[threadIdx.x % 32]);
}

// The best `count` of the block's keys, kItems a thread in ascending order of their groups; a key
// of 0 is none. Calls emit(place, key, item) for each, places 0, 1, ... in ascending order of
// groups. REQUIRES: at least `count` keys.
template <int kItems, class Emit>
__device__ __forceinline__ void SelectBest(const uint32_t (&keys)[kItems], uint32_t count,
                                           Emit&& emit) {
  __shared__ uint32_t totals[2][32];
  uint32_t bound = 0;  // the largest so far with `count` keys at or above it
  bool exact = false;  // there are no more than these
  for (int bit = 31; bit >= 0 && !exact; --bit) {
    const uint32_t candidate = bound | 1u << bit;
    uint32_t at_or_above = 0;
#pragma unroll
    for (int i = 0; i < kItems; ++i) at_or_above += keys[i] >= candidate ? 1 : 0;
    at_or_above = BlockTotal(at_or_above, totals[bit % 2]);
    if (at_or_above >= count) bound = candidate;
    exact = at_or_above == count;
  }
  // Keys above `limit` are in; of those equal to it the first `equals`.
  const uint32_t limit = exact ? bound - 1 : bound;
  uint32_t above = 0, equal = 0;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    above += keys[i] > limit ? 1 : 0;
    equal += keys[i] == limit ? 1 : 0;
  }
  // Both counts in one number: there are at most 16,384 of each.
  const uint32_t own = above << 16 | equal;
  uint32_t before = own;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, before, offset);
    if (lane >= offset) before += other;
  }
  __syncthreads();
  if (lane == 31) totals[0][warp] = before;
  __syncthreads();
  const uint32_t total = totals[0][lane];
  before += __reduce_add_sync(kAllLanes, lane < warp ? total : 0) - own;
  const uint32_t equals = exact ? 0 : count - (__reduce_add_sync(kAllLanes, total) >> 16);
  uint32_t above_before = before >> 16, equal_before = before & 0xffffu;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const bool is_above = keys[i] > limit, is_equal = keys[i] == limit;
    if (is_above || (is_equal && equal_before < equals)) {
      emit(above_before + min(equal_before, equals), keys[i], i);
    }
    above_before += is_above ? 1 : 0;
    equal_before += is_equal ? 1 : 0;
  }
}

// Block (slice, row): the best of 16,384 groups.
__global__ void __launch_bounds__(kSelectThreads)
    select_slices_kernel(const __grid_constant__ TopkArgs args) {
  const int64_t visible = VisibleOf(args, args.first_row + blockIdx.y);
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kSlice;
  if (visible <= kSlice || visible <= args.p.topk || begin >= visible) return;
  const auto groups = static_cast<int>(min(visible - begin, static_cast<int64_t>(kSlice)));
  const int count = min(groups, args.p.topk);
  const float* scores = args.scores + blockIdx.y * args.score_stride + begin;
  uint2* best =
      args.best + (static_cast<int64_t>(blockIdx.y) * args.slices + blockIdx.x) * args.p.topk;
  uint32_t keys[kSelectItems];
  const int own = static_cast<int>(threadIdx.x) * kSelectItems;
#pragma unroll
  for (int i = 0; i < kSelectItems; i += 4) {
    float4 v = make_float4(0, 0, 0, 0);
    if (own + i < groups) v = *reinterpret_cast<const float4*>(scores + own + i);
    keys[i] = own + i < groups ? OrderedScore(v.x) : 0;
    keys[i + 1] = own + i + 1 < groups ? OrderedScore(v.y) : 0;
    keys[i + 2] = own + i + 2 < groups ? OrderedScore(v.z) : 0;
    keys[i + 3] = own + i + 3 < groups ? OrderedScore(v.w) : 0;
  }
  SelectBest(keys, static_cast<uint32_t>(count), [&](uint32_t place, uint32_t key, int item) {
    best[place] = make_uint2(key, static_cast<uint32_t>(begin) + own + item);
  });
  for (int i = count + static_cast<int>(threadIdx.x); i < args.p.topk; i += kSelectThreads) {
    best[i] = make_uint2(0, 0);
  }
}

// Selects from `groups` scores, fewer than kItems * 1024.
template <int kItems>
__device__ __forceinline__ void SelectFromScores(const float* scores, int groups, int count,
                                                 int32_t* selected) {
  uint32_t keys[kItems];
  const int own = static_cast<int>(threadIdx.x) * kItems;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    keys[i] = own + i < groups ? OrderedScore(scores[own + i]) : 0;
  }
  SelectBest(keys, static_cast<uint32_t>(count),
             [&](uint32_t place, uint32_t, int item) { selected[place] = own + item; });
}

// Block (row).
__global__ void __launch_bounds__(kSelectThreads)
    select_groups_kernel(const __grid_constant__ TopkArgs args) {
  const int64_t t = args.first_row + blockIdx.x;
  const int64_t visible = VisibleOf(args, t);
  const int topk = args.p.topk;
  int32_t* selected = args.p.selected + t * topk;
  if (visible <= topk) {
    for (int i = static_cast<int>(threadIdx.x); i < topk; i += kSelectThreads) {
      selected[i] = i < visible ? i : -1;
    }
    return;
  }
  const float* scores = args.scores + blockIdx.x * args.score_stride;
  if (visible <= 4 * kSelectThreads) {
    SelectFromScores<4>(scores, static_cast<int>(visible), topk, selected);
  } else if (visible <= kSlice) {
    SelectFromScores<kSelectItems>(scores, static_cast<int>(visible), topk, selected);
  } else {
    const uint2* best = args.best + static_cast<int64_t>(blockIdx.x) * args.slices * topk;
    const int slices = static_cast<int>((visible + kSlice - 1) / kSlice),
              candidates = slices * topk;
    uint32_t keys[kSelectItems];
    const int own = static_cast<int>(threadIdx.x) * kSelectItems;
#pragma unroll
    for (int i = 0; i < kSelectItems; ++i) keys[i] = own + i < candidates ? best[own + i].x : 0;
    SelectBest(keys, static_cast<uint32_t>(topk), [&](uint32_t place, uint32_t, int item) {
      selected[place] = static_cast<int32_t>(best[own + item].y);
    });
  }
}

struct TopkPlan {
  explicit TopkPlan(const IndexScoreTopkParams& p)
      : max_groups(VisibleGroups(p.step->max_position, kCsaRatio)),
        slices((max_groups + kSlice - 1) / kSlice),
        score_stride((max_groups + kSlice - 1) / kSlice * kSlice),
        row_bytes(max_groups <= p.topk ? 0
                                       : score_stride * 4 + (slices > 1 ? slices * p.topk * 8 : 0)),
        rows(row_bytes == 0 ? p.step->rows
                            : std::clamp<int64_t>(kScoreBytes / row_bytes, 1, p.step->rows)) {}
  int64_t max_groups, slices, score_stride, row_bytes;
  int64_t rows;  // of one round
};

int64_t WorkspaceIndexScoreTopk(const IndexScoreTopkParams& p, int) {
  const TopkPlan plan(p);
  return plan.rows * plan.row_bytes;
}

absl::Status SupportsIndexScoreTopk(const IndexScoreTopkParams& p) {
  if (absl::Status status = SupportsSm12xRows(p); !status.ok()) return status;
  if (p.heads > kMaxHeads) return Unsupported(p.heads, " index heads; at most ", kMaxHeads);
  const TopkPlan plan(p);
  if (plan.slices > 1 && plan.slices * p.topk > kSlice) {
    return Unsupported("topk ", p.topk, " of ", plan.max_groups, " groups; at most ",
                       kSlice / plan.slices);
  }
  return absl::OkStatus();
}

void LaunchIndexScoreTopk(const LaunchContext& context, const IndexScoreTopkParams& params) {
  cudaStream_t stream = CudaStreamOf(context);
  const TopkPlan plan(params);
  TopkArgs args{.p = params,
                .step = *params.step,
                .first_row = 0,
                .scores = reinterpret_cast<float*>(context.workspace),
                .score_stride = plan.score_stride,
                .best = nullptr,
                .slices = static_cast<int>(plan.slices)};
  args.best = reinterpret_cast<uint2*>(args.scores + plan.rows * plan.score_stride);
  for (; args.first_row < params.step->rows; args.first_row += plan.rows) {
    const int64_t rows = std::min(plan.rows, params.step->rows - args.first_row);
    const auto row_blocks = static_cast<unsigned>(rows);
    if (plan.row_bytes > 0) {
      const int64_t blocks = std::min((plan.max_groups + kBlockGroups - 1) / kBlockGroups,
                                      std::max<int64_t>(kScoreBlocks / rows, 1));
      const dim3 grid(static_cast<unsigned>(blocks), row_blocks);
      index_score_kernel<<<grid, kScoreWarps * 32, 0, stream>>>(args);
      if (plan.slices > 1) {
        const dim3 slices(static_cast<unsigned>(plan.slices), row_blocks);
        select_slices_kernel<<<slices, kSelectThreads, 0, stream>>>(args);
      }
    }
    select_groups_kernel<<<row_blocks, kSelectThreads, 0, stream>>>(args);
  }
}

}  // namespace

constinit const KernelEntry kSm12xIndexScoreTopk =
    MakeEntry<IndexScoreTopkParams, &LaunchIndexScoreTopk, &SupportsIndexScoreTopk,
              &WorkspaceIndexScoreTopk>("sm12x.index_score_topk", Backend::kCuda,
                                        NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
