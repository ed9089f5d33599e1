// SPDX-License-Identifier: Apache-2.0
// index_score_topk: score(g) = sum_h w[h] max(0, q[h] . key[g]) of all visible compressed blocks g;
// selects the topk blocks with the highest scores, in ascending order of blocks.
//
// Contract: kernels/op/attention.h; keys index_fp4, at most 128 heads.
//
// Roofline: 68 bytes and 256 H flops for each compressed block and row. Bound by latency at short
// contexts, by the tensor cores at long ones.
//
// Plan: a row that sees at most topk compressed blocks selects all of them, without scores. Other
// rows take two kernels, in rounds of as many rows as the workspace has scores for.
//
// Scores:
// - A warp computes 32 compressed blocks: two m16n8k16 tiles whose columns are heads.
// - A lane loads 16 bytes of a key (one run of 32 elements) and unpacks its fragments in registers.
//   With many rows, it uses them for four neighbouring rows of the step.
// - Queries lie in shared memory in fragment order, 16 KB a row.
// - K is permuted within a run so that no nibble has to move; queries are permuted alike.
//
// Selection:
// - A thread block selects from the compressed blocks of one row. If the row sees more than 16,384,
//   each slice of 16,384 has a thread block, and the last one to end merges the slices' results.
// - Scores are in registers, 16 a thread. The thread block counts them in bins, finds the bin of
//   the topk-th highest score and ranks the scores in it. If too many share that bin, it searches
//   bit by bit instead.
// - All compressed blocks above the topk-th score are selected, then those with an equal score, the
//   lowest first. The order in which threads run does not affect the result.
//
// Edge cases: padding rows select nothing; NaN scores come last; -0 equals 0.
#include <algorithm>

#include "kernels/op/attention.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/mma.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/row_math.cuh"

namespace dsv4 {
namespace sm12x::index_score_topk {

using namespace sm12x;  // NOLINT: the device code of this file

constexpr int kMaxHeads = 128;
constexpr int kSharedRowHeads = 64;  // most heads for which shared memory holds four rows
constexpr int kWarpKeys = 32;
constexpr int64_t kKeysPerBlock = kCompressedKvBlockTokens / kCsaRatio;
constexpr int kSelectThreads = 1024;
constexpr int kSelectItems = 16;
constexpr int kSlice = kSelectThreads * kSelectItems;  // compressed blocks of a slice
constexpr int64_t kScoreBytes = int64_t{64} << 20;

// kScoreWarps: most warps that share a row, for each multiprocessor. kFewRows: up to so many rows,
// each row has its own thread blocks for scores.
enum Knob { kScoreWarps, kFewRows };
constexpr const char* kKnobs[] = {"score_warps_per_multiprocessor", "few_rows"};
constexpr KernelConfig kConfigs[] = {{{16, 64}}, {{8, 64}}, {{24, 64}}, {{32, 64}}, {{16, 16}}};

struct TopkArgs {
  IndexScoreTopkParams p;
  StepRows step;
  int64_t first_row, end_row;  // these rows of the step
  float* scores;               // [rows, score_stride]
  int64_t score_stride;
  uint2* best;            // [rows, slices, topk]: OrderedScore, compressed block; then 0, 0
  uint32_t* slices_done;  // [rows]
  int slices;             // of the longest row; best and slices_done exist if it is above 1
};

__device__ __forceinline__ int64_t VisibleOf(const TopkArgs& args, int64_t t) {
  return args.step.sequence_of[t] < 0 ? 0
                                      : VisibleCompressedBlocks(args.step.positions[t], kCsaRatio);
}

// Unpacks two e2m1 codes, at bit `shift` of each half of `word`, to bf16. Shifted to their places
// they have their value times 2^-126; the two factors correct this and apply the scale.
__device__ __forceinline__ uint32_t UnpackCodes(uint32_t word, int shift, uint32_t factor,
                                                uint32_t more) {
  const uint32_t codes = word >> shift;
  const uint32_t small = (codes << 6 & 0x01c001c0u) | (codes << 12 & 0x80008000u);
  return MultiplyBf16x2(MultiplyBf16x2(small, factor), more);
}

// Unpacks 16 bytes of a key, one run, to the registers of 8 K = 16 steps: [step][k low, k high].
__device__ __forceinline__ void UnpackKey(uint4 codes, uint32_t scale, uint32_t (&out)[8][2]) {
  // 2^126 2^(scale - 127) in two bf16 factors.
  const uint32_t first = min(scale, 128u) - 1, rest = max(scale, 128u) - 128;
  const uint32_t factor = (first + 127) * 0x00800080u, more = (rest + 127) * 0x00800080u;
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      out[2 * w + k / 2][k % 2] = UnpackCodes(words[w], 4 * k, factor, more);
    }
  }
}

// Queries in fragment order: [tile of 8 heads][two steps][lane]. A register pairs elements 8 w + k
// and 8 w + k + 4 of a run, as UnpackKey does.
using QueryTile = uint4[4][32];

__device__ __forceinline__ void StageQueries(const uint16_t* q, int heads, int tiles,
                                             QueryTile* staged) {
  for (int i = static_cast<int>(threadIdx.x); i < tiles * 128; i += static_cast<int>(blockDim.x)) {
    const int head = i / 16, piece = i % 16;  // eight elements: word w of run t
    const int t = piece / 4, w = piece % 4;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (head < heads) v = *reinterpret_cast<const uint4*>(q + head * kIndexKeyElements + piece * 8);
    staged[head / 8][w][head % 8 * 4 + t] =
        make_uint4(__byte_perm(v.x, v.z, 0x5410), __byte_perm(v.x, v.z, 0x7632),
                   __byte_perm(v.y, v.w, 0x5410), __byte_perm(v.y, v.w, 0x7632));
  }
}

// 32 keys of a warp. A lane has keys g, g + 8, g + 16 and g + 24, rows of two MMA tiles. Keys from
// `visible` on are zeros.
struct KeyFragments {
  uint32_t keys[4][8][2];

  __device__ __forceinline__ KeyFragments(const RowPool& pool, const int32_t* blocks, int64_t begin,
                                          int64_t visible, int lane) {
    const int g = lane / 4, quad = lane % 4;
    // All 32 compressed blocks lie in one KV block.
    const int32_t block = blocks[begin / kKeysPerBlock];
    uint4 codes[4];
    uint32_t scales[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int64_t slot = begin % kKeysPerBlock + r * 8 + g;
      codes[r] = make_uint4(0, 0, 0, 0);
      scales[r] = 127;
      if (begin + r * 8 + g < visible) {
        codes[r] = *reinterpret_cast<const uint4*>(pool.Row(block, slot) + quad * 16);
        scales[r] = static_cast<uint32_t>(pool.Scales(block, slot)[quad]);
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) UnpackKey(codes[r], scales[r], keys[r]);
  }

  // Sets sums[r] to the score of key 8 r + g, in every lane of a quad.
  __device__ __forceinline__ void Score(const QueryTile* queries, const float2* weights, int tiles,
                                        int lane, float (&sums)[4]) const {
#pragma unroll
    for (int r = 0; r < 4; ++r) sums[r] = 0;
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
      const float2 weight = weights[tile * 4 + lane % 4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        // A NaN must stay NaN: fmaxf would turn it into 0.
        const float x = dots[r / 2][r % 2 * 2], y = dots[r / 2][r % 2 * 2 + 1];
        sums[r] = __fmaf_rn(weight.x, x < 0 ? 0.0f : x, sums[r]);
        sums[r] = __fmaf_rn(weight.y, y < 0 ? 0.0f : y, sums[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      sums[r] = __fadd_rn(sums[r], __shfl_xor_sync(kAllLanes, sums[r], 1));
      sums[r] = __fadd_rn(sums[r], __shfl_xor_sync(kAllLanes, sums[r], 2));
    }
  }
};

// Shared memory of a block for kRows rows: their queries, then their weights.
constexpr int ScoreSharedBytes(int rows, int tiles) {
  return rows * tiles * static_cast<int>(sizeof(QueryTile) + 8 * sizeof(float));
}

// Block (x: part of the compressed blocks, y: kRows neighbouring rows of the step). Keys are
// unpacked once for all of its rows of a sequence.
template <int kRows, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, 16 / kWarps)
    index_score_kernel(const __grid_constant__ TopkArgs args) {
  LetSuccessorStart();
  auto* const dynamic_memory = DynamicShared<unsigned char>();
  __shared__ int64_t visible[kRows];
  __shared__ int32_t sequence[kRows];
  WaitForPredecessors();
  const IndexScoreTopkParams& p = args.p;
  const int64_t first_row = args.first_row + int64_t{blockIdx.y} * kRows;
  const int rows = static_cast<int>(min(args.end_row - first_row, int64_t{kRows}));
  const int tiles = (p.heads + 7) / 8;
  auto* queries = reinterpret_cast<QueryTile*>(dynamic_memory);
  auto* weights = reinterpret_cast<float*>(queries + kRows * tiles);
  int64_t most = 0;  // the most compressed blocks that a row needs scores of
  for (int r = 0; r < rows; ++r) {
    const int64_t compressed_blocks = VisibleOf(args, first_row + r);
    if (compressed_blocks > p.topk && compressed_blocks > most) most = compressed_blocks;
    if (threadIdx.x == 0) {
      visible[r] = compressed_blocks > p.topk ? compressed_blocks : 0;
      sequence[r] = args.step.sequence_of[first_row + r];
    }
  }
  if (args.slices > 1 && blockIdx.x == 0 && threadIdx.x < static_cast<unsigned>(rows)) {
    args.slices_done[first_row - args.first_row + threadIdx.x] = 0;
  }
  constexpr int kBlockKeys = kWarps * kWarpKeys;
  const int64_t first = int64_t{blockIdx.x} * kBlockKeys;
  if (first >= most) return;
  for (int r = 0; r < rows; ++r) {
    const int64_t t = first_row + r;
    StageQueries(static_cast<const uint16_t*>(p.q) + t * p.heads * kIndexKeyElements, p.heads,
                 tiles, queries + r * tiles);
    for (int h = static_cast<int>(threadIdx.x); h < tiles * 8; h += kWarps * 32) {
      weights[r * tiles * 8 + h] =
          h < p.heads ? __fmul_rn(Bf16(static_cast<const uint16_t*>(p.weights)[t * p.heads + h]),
                                  p.weight_scale)
                      : 0;
    }
  }
  __syncthreads();

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int run = 0, end; run < rows; run = end) {
    int64_t compressed_blocks = visible[run];
    for (end = run + 1; end < rows && sequence[end] == sequence[run]; ++end) {
      compressed_blocks = max(compressed_blocks, visible[end]);
    }
    if (compressed_blocks == 0) continue;
    const int32_t* blocks = args.step.sequences[sequence[run]].compressed_kv_blocks;
    for (int64_t begin = first + warp * kWarpKeys; begin < compressed_blocks;
         begin += int64_t{gridDim.x} * kBlockKeys) {
      const KeyFragments keys(p.keys, blocks, begin, compressed_blocks, lane);
      for (int r = run; r < end; ++r) {
        if (begin >= visible[r]) continue;
        float sums[4];
        keys.Score(queries + r * tiles, reinterpret_cast<const float2*>(weights) + r * tiles * 4,
                   tiles, lane, sums);
        float* scores = args.scores + (first_row - args.first_row + r) * args.score_stride;
        // Lane 4 g + r writes key 8 r + g.
        const int own = lane % 4;
        const float sum = own == 0 ? sums[0] : own == 1 ? sums[1] : own == 2 ? sums[2] : sums[3];
        const int64_t compressed_block = begin + own * 8 + lane / 4;
        if (compressed_block < visible[r]) scores[compressed_block] = sum;
      }
    }
  }
}

// Maps scores to positive integers in the same order; NaN counts as minus infinity.
__device__ __forceinline__ uint32_t OrderedScore(float score) {
  if (isnan(score)) score = -INFINITY;
  const uint32_t bits = __float_as_uint(__fadd_rn(score, 0.0f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float ScoreOf(uint32_t ordered) {
  return __uint_as_float((ordered & 0x80000000u) != 0 ? ordered ^ 0x80000000u : ~ordered);
}

// The sum over the thread block. `scratch` can be reused after the next barrier.
__device__ __forceinline__ uint32_t BlockTotal(uint32_t value, uint32_t* scratch) {
  const uint32_t warp_total = __reduce_add_sync(kAllLanes, value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = warp_total;
  __syncthreads();
  return __reduce_add_sync(kAllLanes, scratch[threadIdx.x % 32]);
}

// The exclusive prefix sum over the thread block; sets *total to the sum. `scratch` as above.
__device__ __forceinline__ uint32_t BlockBefore(uint32_t value, uint32_t* scratch,
                                                uint32_t* total) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  uint32_t up_to = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, up_to, offset);
    if (lane >= offset) up_to += other;
  }
  if (lane == 31) scratch[warp] = up_to;
  __syncthreads();
  const uint32_t of_warp = scratch[lane];
  *total = __reduce_add_sync(kAllLanes, of_warp);
  return up_to - value + __reduce_add_sync(kAllLanes, lane < warp ? of_warp : 0);
}

// Selected are the keys above `limit`, and the first `equals` keys that equal it.
struct Selection {
  uint32_t limit, equals;
};

constexpr int kBins = 2 * kSelectThreads;
constexpr uint32_t kMostCandidates = 1024;

struct SelectShared {
  uint32_t totals[2][32];
  uint32_t bins[kBins];
  uint32_t candidates[kMostCandidates];
  uint32_t candidate_count;
  uint32_t bin, above;  // the bin of the last selected key, and the number of keys in higher bins
  Selection found;
};

// Finds the selection of the highest `count` keys bit by bit, in 32 rounds over all keys.
template <int kItems>
__device__ __forceinline__ Selection FindByBits(const uint32_t (&keys)[kItems], uint32_t count,
                                                SelectShared& shared) {
  uint32_t bound = 0;  // the highest value so far that `count` keys reach
  for (int bit = 31; bit >= 0; --bit) {
    const uint32_t candidate = bound | 1u << bit;
    uint32_t at_or_above = 0;
#pragma unroll
    for (int i = 0; i < kItems; ++i) at_or_above += keys[i] >= candidate ? 1 : 0;
    at_or_above = BlockTotal(at_or_above, shared.totals[bit % 2]);
    if (at_or_above >= count) bound = candidate;
    if (at_or_above == count) return {bound - 1, 0};
  }
  uint32_t above = 0;
#pragma unroll
  for (int i = 0; i < kItems; ++i) above += keys[i] > bound ? 1 : 0;
  __syncthreads();
  return {bound, count - BlockTotal(above, shared.totals[0])};
}

// Finds the selection by bins of equal width between the lowest and the highest score: ranks the
// keys in the bin of the last selected key. Sets *applies, alike in every thread, to whether this
// works: not for scores without finite bins, nor if that bin has too many keys.
template <int kItems>
__device__ __forceinline__ Selection FindByBins(const uint32_t (&keys)[kItems], uint32_t count,
                                                SelectShared& shared, bool* applies) {
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t lowest = 0xffffffffu, highest = 0;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    highest = max(highest, keys[i]);
    lowest = min(lowest, keys[i] == 0 ? 0xffffffffu : keys[i]);
  }
  lowest = __reduce_min_sync(kAllLanes, lowest);
  highest = __reduce_max_sync(kAllLanes, highest);
  if (thread % 32 == 0) {
    shared.totals[0][thread / 32] = lowest;
    shared.totals[1][thread / 32] = highest;
  }
  shared.bins[thread] = shared.bins[thread + kSelectThreads] = 0;
  if (thread == 0) shared.candidate_count = 0;
  __syncthreads();
  const float low = ScoreOf(__reduce_min_sync(kAllLanes, shared.totals[0][thread % 32]));
  const float high = ScoreOf(__reduce_max_sync(kAllLanes, shared.totals[1][thread % 32]));
  const float width = __fdiv_rn(static_cast<float>(kBins - 1), __fsub_rn(high, low));
  *applies = width > 0 && width < INFINITY;  // not for equal scores or infinite ones
  if (!*applies) return {};
  // Monotonic.
  const auto bin_of = [&](uint32_t key) {
    return min(static_cast<int>(__fmul_rn(__fsub_rn(ScoreOf(key), low), width)), kBins - 1);
  };
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (keys[i] != 0) atomicAdd(&shared.bins[bin_of(keys[i])], 1);
  }
  __syncthreads();
  // Two bins a thread, from the highest down.
  const int upper = kBins - 1 - 2 * thread;
  const uint32_t in_upper = shared.bins[upper], in_both = in_upper + shared.bins[upper - 1];
  uint32_t total;
  const uint32_t before = BlockBefore(in_both, shared.totals[0], &total);
  if (before < count && count <= before + in_both) {
    const bool in_first = count <= before + in_upper;
    shared.bin = in_first ? upper : upper - 1;
    shared.above = in_first ? before : before + in_upper;
  }
  __syncthreads();
  const auto bin = static_cast<int>(shared.bin);
  *applies = shared.bins[bin] <= kMostCandidates;
  if (!*applies) return {};
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (keys[i] != 0 && bin_of(keys[i]) == bin) {
      shared.candidates[atomicAdd(&shared.candidate_count, 1)] = keys[i];
    }
  }
  __syncthreads();
  const uint32_t candidates = shared.candidate_count, wanted = count - shared.above;
  if (static_cast<uint32_t>(thread) < candidates) {
    const uint32_t own = shared.candidates[thread];
    uint32_t above = 0, equal = 0;
    for (uint32_t i = 0; i < candidates; ++i) {
      above += shared.candidates[i] > own ? 1 : 0;
      equal += shared.candidates[i] == own ? 1 : 0;
    }
    // Threads with equal keys write the same value.
    if (above < wanted && wanted <= above + equal) shared.found = {own, wanted - above};
  }
  __syncthreads();
  return shared.found;
}

// Selects the highest `count` keys of the thread block and calls emit(place, key, item) for each.
// - keys: kItems a thread, in ascending order of compressed blocks. 0 is no key.
// - place: 0, 1, ... in ascending order of compressed blocks.
// REQUIRES: at least `count` keys; count > 0.
template <int kItems, class Emit>
__device__ __forceinline__ void SelectBest(const uint32_t (&keys)[kItems], uint32_t count,
                                           SelectShared& shared, Emit&& emit) {
  bool applies;
  Selection selection = FindByBins(keys, count, shared, &applies);
  __syncthreads();
  if (!applies) {
    selection = FindByBits(keys, count, shared);
    __syncthreads();
  }
  uint32_t above = 0, equal = 0;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    above += keys[i] > selection.limit ? 1 : 0;
    equal += keys[i] == selection.limit ? 1 : 0;
  }
  // Both counts in one number: there are at most 16,384 of each.
  uint32_t total;
  const uint32_t before = BlockBefore(above << 16 | equal, shared.totals[0], &total);
  uint32_t above_before = before >> 16, equal_before = before & 0xffffu;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const bool is_above = keys[i] > selection.limit, is_equal = keys[i] == selection.limit;
    if (is_above || (is_equal && equal_before < selection.equals)) {
      emit(above_before + min(equal_before, selection.equals), keys[i], i);
    }
    above_before += is_above ? 1 : 0;
    equal_before += is_equal ? 1 : 0;
  }
}

// Loads a thread's keys from `compressed_blocks` scores.
template <int kItems>
__device__ __forceinline__ void LoadKeys(const float* scores, int compressed_blocks,
                                         uint32_t (&keys)[kItems]) {
  const int own = static_cast<int>(threadIdx.x) * kItems;
#pragma unroll
  for (int i = 0; i < kItems; i += 4) {
    float4 v = make_float4(0, 0, 0, 0);
    if (own + i < compressed_blocks) v = *reinterpret_cast<const float4*>(scores + own + i);
    keys[i] = own + i < compressed_blocks ? OrderedScore(v.x) : 0;
    keys[i + 1] = own + i + 1 < compressed_blocks ? OrderedScore(v.y) : 0;
    keys[i + 2] = own + i + 2 < compressed_blocks ? OrderedScore(v.z) : 0;
    keys[i + 3] = own + i + 3 < compressed_blocks ? OrderedScore(v.w) : 0;
  }
}

// Selects from `compressed_blocks` scores, at most kItems * 1024.
template <int kItems>
__device__ __forceinline__ void SelectFromScores(const float* scores, int compressed_blocks,
                                                 int count, SelectShared& shared,
                                                 int32_t* selected) {
  uint32_t keys[kItems];
  LoadKeys(scores, compressed_blocks, keys);
  const int own = static_cast<int>(threadIdx.x) * kItems;
  SelectBest(keys, static_cast<uint32_t>(count), shared,
             [&](uint32_t place, uint32_t, int i) { selected[place] = own + i; });
}

// Selects from `count` results of slices, at most kItems * 1024.
template <int kItems>
__device__ __forceinline__ void SelectFromBest(const uint2* best, int count, int topk,
                                               SelectShared& shared, int32_t* selected) {
  uint32_t keys[kItems];
  const int own = static_cast<int>(threadIdx.x) * kItems;
#pragma unroll
  for (int i = 0; i < kItems; ++i) keys[i] = own + i < count ? best[own + i].x : 0;
  SelectBest(keys, static_cast<uint32_t>(topk), shared, [&](uint32_t place, uint32_t, int i) {
    selected[place] = static_cast<int32_t>(best[own + i].y);
  });
}

// Selects from more than kSlice scores, with a thread block for each slice.
__device__ __forceinline__ void SelectFromSlices(const TopkArgs& args, int compressed_blocks,
                                                 SelectShared& shared) {
  __shared__ bool last;
  const int begin = static_cast<int>(blockIdx.y) * kSlice;
  if (begin >= compressed_blocks) return;
  const int topk = args.p.topk, row = static_cast<int>(blockIdx.x);
  const int own = static_cast<int>(threadIdx.x) * kSelectItems;
  uint2* best = args.best + int64_t{row} * args.slices * topk;
  uint32_t keys[kSelectItems];
  LoadKeys(args.scores + row * args.score_stride + begin, min(compressed_blocks - begin, kSlice),
           keys);
  const int count = min(compressed_blocks - begin, topk);
  SelectBest(keys, static_cast<uint32_t>(count), shared, [&](uint32_t place, uint32_t key, int i) {
    best[blockIdx.y * topk + place] = make_uint2(key, static_cast<uint32_t>(begin + own + i));
  });
  for (int i = count + static_cast<int>(threadIdx.x); i < topk; i += kSelectThreads) {
    best[blockIdx.y * topk + i] = make_uint2(0, 0);
  }
  // Fences are cumulative: those of thread 0 also cover what its block wrote before the first
  // barrier and reads after the second. Fences in all threads would take microseconds.
  const int slices = (compressed_blocks + kSlice - 1) / kSlice;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    last = atomicAdd(&args.slices_done[row], 1u) == static_cast<uint32_t>(slices) - 1;
    __threadfence();
  }
  __syncthreads();
  if (!last) return;
  int32_t* selected = args.p.selected + (args.first_row + row) * topk;
  if (slices * topk <= 4 * kSelectThreads) {
    SelectFromBest<4>(best, slices * topk, topk, shared, selected);
  } else {
    SelectFromBest<kSelectItems>(best, slices * topk, topk, shared, selected);
  }
}

// Block (row, slice).
__global__ void __launch_bounds__(kSelectThreads)
    select_blocks_kernel(const __grid_constant__ TopkArgs args) {
  LetSuccessorStart();
  __shared__ SelectShared shared;
  WaitForPredecessors();
  const int64_t row = blockIdx.x, t = args.first_row + row;
  const int64_t visible = VisibleOf(args, t);
  const int topk = args.p.topk;
  int32_t* selected = args.p.selected + t * topk;
  if (visible > topk && visible > kSlice) {
    SelectFromSlices(args, static_cast<int>(visible), shared);
    return;
  }
  if (blockIdx.y != 0) return;
  if (visible <= topk) {
    for (int i = static_cast<int>(threadIdx.x); i < topk; i += kSelectThreads) {
      selected[i] = i < visible ? i : -1;
    }
    return;
  }
  const float* scores = args.scores + row * args.score_stride;
  if (visible <= 4 * kSelectThreads) {
    SelectFromScores<4>(scores, static_cast<int>(visible), topk, shared, selected);
  } else {
    SelectFromScores<kSelectItems>(scores, static_cast<int>(visible), topk, shared, selected);
  }
}

struct TopkPlan {
  explicit TopkPlan(const IndexScoreTopkParams& p)
      : max_compressed_blocks(VisibleCompressedBlocks(p.step->max_position, kCsaRatio)),
        slices((max_compressed_blocks + kSlice - 1) / kSlice),
        score_stride((max_compressed_blocks + kSlice - 1) / kSlice * kSlice),
        row_bytes(max_compressed_blocks <= p.topk
                      ? 0
                      : score_stride * 4 + (slices > 1 ? slices * p.topk * 8 + 4 : 0)),
        rows(row_bytes == 0 ? p.step->rows
                            : std::clamp<int64_t>(kScoreBytes / row_bytes, 1, p.step->rows)) {}
  int64_t max_compressed_blocks, slices, score_stride, row_bytes;
  int64_t rows;  // of a round
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
    return Unsupported("topk ", p.topk, " of ", plan.max_compressed_blocks,
                       " compressed blocks; at most ", kSlice / plan.slices);
  }
  return absl::OkStatus();
}

// Enqueues the scores of rows [first_row, end_row).
template <int kRows, int kWarps>
void LaunchScores(const TopkArgs& args, int64_t max_compressed_blocks, int64_t warps,
                  cudaStream_t stream) {
  const int64_t row_blocks = (args.end_row - args.first_row + kRows - 1) / kRows;
  const int64_t blocks =
      std::min((max_compressed_blocks + kWarps * kWarpKeys - 1) / (kWarps * kWarpKeys),
               std::max<int64_t>(warps / (kWarps * row_blocks), 1));
  const int bytes = ScoreSharedBytes(kRows, (args.p.heads + 7) / 8);
  const auto kernel = index_score_kernel<kRows, kWarps>;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(row_blocks));
  LaunchOverlapped(stream, grid, kWarps * 32, bytes, kernel, args);
}

void LaunchIndexScoreTopk(const LaunchContext& context, const IndexScoreTopkParams& params) {
  cudaStream_t stream = CudaStreamOf(context);
  const TopkPlan plan(params);
  const KernelConfig& config = ConfigOf(context, kConfigs);
  const int64_t warps = int64_t{config.values[kScoreWarps]} * context.multiprocessors;
  const int64_t rows = params.step->rows;
  TopkArgs args{.p = params,
                .step = *params.step,
                .first_row = 0,
                .end_row = 0,
                .scores = reinterpret_cast<float*>(context.workspace),
                .score_stride = plan.score_stride,
                .best = nullptr,
                .slices_done = nullptr,
                .slices = static_cast<int>(plan.slices)};
  args.best = reinterpret_cast<uint2*>(args.scores + plan.rows * plan.score_stride);
  args.slices_done = reinterpret_cast<uint32_t*>(args.best + plan.rows * plan.slices * params.topk);
  for (; args.first_row < rows; args.first_row = args.end_row) {
    args.end_row = std::min(rows, args.first_row + plan.rows);
    const auto row_blocks = static_cast<unsigned>(args.end_row - args.first_row);
    if (plan.row_bytes == 0) {
      LaunchOverlapped(stream, dim3(row_blocks), kSelectThreads, 0, select_blocks_kernel, args);
      continue;
    }
    if (rows <= config.values[kFewRows] || params.heads > kSharedRowHeads) {
      LaunchScores<1, 8>(args, plan.max_compressed_blocks, warps, stream);
    } else {
      LaunchScores<4, 16>(args, plan.max_compressed_blocks, warps, stream);
    }
    const dim3 slices(row_blocks, static_cast<unsigned>(plan.slices));
    LaunchOverlapped(stream, slices, kSelectThreads, 0, select_blocks_kernel, args);
  }
}

}  // namespace sm12x::index_score_topk
using namespace sm12x::index_score_topk;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xIndexScoreTopk =
    MakeSm12xEntry<IndexScoreTopkParams, &LaunchIndexScoreTopk, &SupportsIndexScoreTopk,
                   &WorkspaceIndexScoreTopk>("sm12x.index_score_topk", 1, {kKnobs, kConfigs});

}  // namespace dsv4
