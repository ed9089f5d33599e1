// SPDX-License-Identifier: Apache-2.0
// The experts of up to eight rows, in two kernels that expert_ffn.cu launches. All blocks are
// resident at once and have equal shares of the weights.
//
// A warp has a part of K. It streams this part of all tiles of its block, expert by expert, through
// registers. It waits for other warps only at the end of a round of row slots, where products of K
// slices are added in shared memory. With one row there is mostly a single round.
//
// - First half (up): blocks divide all tiles of I of the shared and of the chosen experts.
// - Second half (down): a block has one tile of D of all these experts, so that it can also add up
//   the row. It loads its first weights while the first half ends.
//
// Sums have the order of inner_product.cuh.
#pragma once

#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/expert_ffn.cuh"
#include "kernels/sm12x/expert_streams.cuh"

namespace dsv4::sm12x {

inline constexpr int kFewRows = 8;
inline constexpr int kFewPairs = 64;
inline constexpr int kFewThreads = kSplitThreads;
inline constexpr int kFewBlocks = 2;  // of a multiprocessor
// The first half of one row: a block with as many warps, so that shares differ by less of them.
template <bool kOneRow>
inline constexpr int kUpThreads = kOneRow ? kFewBlocks* kFewThreads : kFewThreads;
template <bool kOneRow>
inline constexpr int kUpBlocks = kOneRow ? 1 : kFewBlocks;
inline constexpr int kRoundRows = kSplitRows;  // row slots of a round
static_assert(kRoundRows == kSplitWarps);      // a warp finishes a row slot
// Row slots of a round of the first half. With one row, a slot is a tile.
template <bool kOneRow>
inline constexpr int kUpSlots = kOneRow ? 4 : kRoundRows;
// Row slots of a round of the second half. With one row, a slot is an expert; else a warp has two
// slots.
template <bool kOneRow>
inline constexpr int kDownSlots = kOneRow ? 8 : 2 * kFewThreads / 32;

constexpr bool FewRowsFit(int64_t rows, int64_t experts_per_token) {
  return rows <= kFewRows && rows * experts_per_token <= kFewPairs;
}
// All warps of a block share K.
constexpr SplitPlan FewPlanOf(int64_t k, int threads = kFewThreads) {
  SplitPlan plan{static_cast<int>(k / kKSlice), /*shift=*/0};
  while (32 << plan.shift < threads) ++plan.shift;
  plan.warps = threads / 32;
  return plan;
}
constexpr int64_t FewProductBytes(int64_t k, int matrices, int slots) {
  return k / kKSlice * matrices * slots * kProductStride * int64_t{sizeof(float)};
}

// The jobs of a launch, in shared memory. A job is a chosen expert with some of its pairs (row,
// expert); an expert with many pairs has several jobs.
struct FewJobs {
  int32_t count;
  int32_t first[kFewPairs + 1];  // job j has pair[first[j]] .. pair[first[j + 1] - 1]
  int32_t pair[kFewPairs];
  int32_t expert[kFewPairs];  // of each pair; -1 if it has none
  struct Packed {
    const uint8_t *data, *scale;
  };
  Packed weights[kFewPairs][2];
  int32_t keys[kFewPairs];  // scratch of ListFewRows

  __device__ __forceinline__ int Rows(int job) const { return first[job + 1] - first[job]; }
  __device__ __forceinline__ Fp4Slices::Cursor Cursor(int job, int matrix, int64_t k,
                                                      int64_t tile) const {
    const Packed& w = weights[job][matrix];
    return {Fp4Weight{w.data, w.scale, 0, k}, tile, static_cast<int>(threadIdx.x % 32)};
  }
};

// Reads where the matrices `first` and `second` of an expert are.
struct FewWeights {
  ExpertMatrix ExpertWeights::*first;
  ExpertMatrix ExpertWeights::*second;
  __device__ __forceinline__ void Read(const ExpertFfnParams& p, int32_t expert,
                                       FewJobs::Packed (&to)[2]) const {
    const ExpertWeights& all = *p.experts_table[expert];
    to[0] = {(all.*first).data, (all.*first).scale};
    to[1] = {(all.*second).data, (all.*second).scale};
  }
};

// Fills `jobs` for one row, with one job for each pair: the number of jobs, and so a block's share,
// is known before the experts are. All threads of a block call it; a barrier must follow.
// The job of a pair without an expert reads bytes of `other`, the shared expert's matrix of the
// same shape; its products are never used.
__device__ __forceinline__ void ListOneRow(const ExpertFfnParams& p, const FewWeights& which,
                                           const Fp8Weight& other, FewJobs* jobs) {
  const int i = threadIdx.x;
  if (i < p.experts_per_token) {
    const int32_t expert = p.experts[i];
    const bool valid = expert >= 0 && expert < p.expert_count;
    if (valid) {
      which.Read(p, expert, jobs->weights[i]);
    } else {
      jobs->weights[i][0] = jobs->weights[i][1] = {other.data, other.data};
    }
    jobs->expert[i] = valid ? expert : -1;
    jobs->pair[i] = jobs->first[i] = i;
  }
  if (i == 0) jobs->count = p.experts_per_token;
}

// ListOneRow where each expert has a thread, which reads where the expert's matrices are before the
// row's experts are known.
struct ExpertOfThread {
  FewJobs::Packed weights[2];

  static __device__ __forceinline__ bool Fits(const ExpertFfnParams& p, int threads) {
    return p.expert_count <= threads && p.experts_per_token <= threads;
  }
  __device__ __forceinline__ ExpertOfThread(const ExpertFfnParams& p, const FewWeights& which,
                                            bool reads) {
    if (reads && static_cast<int32_t>(threadIdx.x) < p.expert_count) {
      which.Read(p, static_cast<int32_t>(threadIdx.x), weights);
    }
  }
  // As ListOneRow.
  __device__ __forceinline__ void List(const ExpertFfnParams& p, const Fp8Weight& other,
                                       FewJobs* jobs) const {
    const auto thread = static_cast<int32_t>(threadIdx.x);
    for (int32_t i = 0; i < p.experts_per_token; ++i) {
      const int32_t expert = p.experts[i];
      const bool valid = expert >= 0 && expert < p.expert_count;
      if (thread == expert) {
        jobs->weights[i][0] = weights[0];
        jobs->weights[i][1] = weights[1];
      }
      if (thread == 0) {
        if (!valid) jobs->weights[i][0] = jobs->weights[i][1] = {other.data, other.data};
        jobs->expert[i] = valid ? expert : -1;
        jobs->pair[i] = jobs->first[i] = i;
      }
    }
    if (thread == 0) jobs->count = p.experts_per_token;
  }
};

// Lists the jobs of several rows, with at most kMostRows pairs a job, in an order that depends on
// the experts alone. A pair without an expert has no job.
template <int kMostRows>
__device__ __forceinline__ void ListFewRows(const ExpertFfnParams& p, const FewWeights& which,
                                            FewJobs* jobs) {
  // kLanes neighbouring threads share a pair. Each compares it with every kLanes-th pair.
  constexpr int kLanes = kFewThreads / kFewPairs;
  static_assert(kLanes * kFewPairs == kFewThreads && 32 % kLanes == 0);
  const int i = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int pairs = p.rows * p.experts_per_token;
  const auto count = [&](auto&& matches) {
    int found = 0;
#pragma unroll 4
    for (int j = lane; j < pairs; j += kLanes) found += matches(j) ? 1 : 0;
#pragma unroll
    for (int offset = 1; offset < kLanes; offset *= 2) {
      found += __shfl_xor_sync(0xffffffffu, found, offset);
    }
    return found;
  };
  const int32_t expert = i < pairs ? p.experts[i] : -1;
  const bool valid = expert >= 0 && expert < p.expert_count, writes = lane == 0;
  if (writes) jobs->expert[i] = valid ? expert : -1;
  __syncthreads();
  const int rank = count([&](int j) { return j < i && jobs->expert[j] == expert; });
  const int32_t key = valid ? expert * kFewPairs + rank / kMostRows : INT32_MAX;
  if (writes) jobs->keys[i] = key;
  __syncthreads();
  const int before = count([&](int j) { return j < i && jobs->keys[j] == key; });
  const int place = before + count([&](int j) { return jobs->keys[j] < key; });
  const bool leads = valid && before == 0;
  if (valid && writes) jobs->pair[place] = i;
  const int live = __syncthreads_count(valid && writes);
  const int job_count = __syncthreads_count(leads && writes);
  if (writes) jobs->keys[i] = leads ? place : INT32_MAX;
  __syncthreads();
  const int job = count([&](int j) { return jobs->keys[j] < place; });
  if (leads && writes) {
    jobs->first[job] = place;
    which.Read(p, expert, jobs->weights[job]);
  }
  if (threadIdx.x == 0) {
    jobs->count = job_count;
    jobs->first[job_count] = live;
  }
  __syncthreads();
}

// The end of the segments from `begin` on whose row slots fit in a round.
template <int kSlots, class RowsOf>
__device__ __forceinline__ int RoundEnd(int begin, int until, RowsOf&& rows_of) {
  int end = begin;
  for (int slots = 0; end < until && (slots += rows_of(end)) <= kSlots;) ++end;
  return end;
}
// The segment of round [begin, end) that has row slot `slot`, and sets *row to its row there; `end`
// if there is none.
template <class RowsOf>
__device__ __forceinline__ int SegmentOf(int begin, int end, int slot, int* row, RowsOf&& rows_of) {
  int segment = begin;
  while (segment < end && slot >= rows_of(segment)) slot -= rows_of(segment++);
  *row = slot;
  return segment;
}

// Computes the hidden values of `count` segments: consecutive tiles of I of one kind of expert.
// Calls `prepare` before it reads rows.
template <class KSlices, bool kOneRow, class Prepare, class WeightOf, class RowsOf, class SlotOf>
__device__ __forceinline__ void FewUp(const ExpertFfnParams& p, const SplitPlan& plan, int count,
                                      float* products, const std::byte* staged, Prepare&& prepare,
                                      WeightOf&& weight_of, RowsOf&& rows_of, SlotOf&& slot_of) {
  FewStream<KSlices, 2, 4 / KSlices::kVectors, kUpSlots<kOneRow>, kOneRow> stream;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  stream.Begin(plan, count, weight_of);
  prepare();
  for (int begin = 0; begin < count;) {
    const int end = RoundEnd<kUpSlots<kOneRow>>(begin, count, rows_of);
    stream.Use(begin, end, 0, kOneRow ? StagedScales(p.hidden) : p.hidden, products, weight_of,
               rows_of, [&](int segment, int row, int) {
                 return kOneRow ? staged : InputRow(p, slot_of(segment, row).row);
               });
    __syncthreads();
    int row;
    const int segment = SegmentOf(begin, end, warp, &row, rows_of);
    if (segment < end) {
      const float value =
          FewSum<2, kUpSlots<kOneRow>>(products, plan.slices, lane / 16, warp, lane % 16);
      const float up = __shfl_down_sync(0xffffffffu, value, 16);
      if (lane < 16) {
        const auto slot = slot_of(segment, row);
        StoreBf16(slot.hidden + lane,
                  GatedProduct(RoundBf16(value), RoundBf16(up), p.limit, slot.weight));
      }
    }
    __syncthreads();
    begin = end;
  }
}

struct FewSlot {
  int64_t row;
  uint16_t* hidden;  // 16 hidden values: the tile's
  float weight;
};

template <bool kOneRow>
__global__ void __launch_bounds__(kUpThreads<kOneRow>, kUpBlocks<kOneRow>)
    expert_up_few_kernel(const __grid_constant__ ExpertFfnParams p,
                         const __grid_constant__ FfnWorkspace work,
                         const __grid_constant__ SplitPlan plan) {
  auto* const products = DynamicShared<float>();
  __shared__ FewJobs jobs;
  const int64_t tiles = p.inter / kTileRows;
  // Weights are constant, so each block prefetches its share of the shared expert to L2 while
  // predecessors run.
  if (threadIdx.x < 2) {
    const Fp8Weight& w = threadIdx.x == 0 ? p.shared_w1 : p.shared_w3;
    const int64_t vectors = tiles * kTileRows * p.hidden / 16;
    const int64_t begin = vectors * blockIdx.x / gridDim.x * 16;
    const int64_t end = vectors * (blockIdx.x + 1) / gridDim.x * 16;
    if (begin < end) PrefetchBulk(w.data + begin, static_cast<uint32_t>(end - begin));
  }
  // The table of experts is constant, too.
  const FewWeights which = {&ExpertWeights::w1, &ExpertWeights::w3};
  const bool preread = kOneRow && ExpertOfThread::Fits(p, kUpThreads<kOneRow>);
  const ExpertOfThread own(p, which, preread);
  if (!preread && blockIdx.x + 1 == gridDim.x) {
    for (int e = threadIdx.x; e < p.expert_count; e += kUpThreads<kOneRow>) {
      const auto* weights = reinterpret_cast<const std::byte*>(p.experts_table[e]);
      PrefetchLine(weights);
      PrefetchLine(weights + sizeof(ExpertWeights) - 1);
    }
  }
  std::byte* staged =
      reinterpret_cast<std::byte*>(products) + FewProductBytes(p.hidden, 2, kUpSlots<kOneRow>);
  // Called before rows are read. With one row, the first weights of the shared expert are loaded
  // before that.
  bool prepared = false;
  const auto prepare = [&] {
    if (prepared) return;
    prepared = true;
    BeginAfterPredecessors();
    if constexpr (kOneRow) {
      preread ? own.List(p, p.shared_w1, &jobs) : ListOneRow(p, which, p.shared_w1, &jobs);
      StageQuantized(InputRow(p, 0), p.hidden, kUpThreads<kOneRow>, staged);
      __syncthreads();
    } else {
      ListFewRows<kRoundRows>(p, which, &jobs);
    }
  };
  if (!kOneRow) prepare();
  // A tile of the shared expert counts as one share. It has twice the bytes of a routed expert's
  // tile, but most of them are in L2 by now.
  const int64_t shares = ((kOneRow ? p.experts_per_token : jobs.count) + 1) * tiles;
  const int64_t begin = shares * blockIdx.x / gridDim.x;
  const int64_t end = shares * (blockIdx.x + 1) / gridDim.x;
  const int warp_lane = threadIdx.x % 32;
  const int64_t shared_begin = min(begin, tiles), shared_end = min(end, tiles);
  const int routed_begin = static_cast<int>(max(begin - tiles, int64_t{0}));
  const int routed_end = static_cast<int>(max(end - tiles, int64_t{0}));
  if (shared_begin < shared_end) {
    FewUp<Fp8Slices, kOneRow>(
        p, plan, static_cast<int>(shared_end - shared_begin), products, staged, prepare,
        [&](int segment, int matrix) {
          return Fp8Slices::Cursor(matrix == 0 ? p.shared_w1 : p.shared_w3, shared_begin + segment,
                                   warp_lane);
        },
        [&](int) { return kOneRow ? 1 : p.rows; },
        [&](int segment, int row) -> FewSlot {
          const int64_t slot = int64_t{p.rows} * p.experts_per_token + row;
          return {row, work.hidden + slot * p.inter + (shared_begin + segment) * kTileRows, 1.0f};
        });
  }
  if (kOneRow && routed_begin < routed_end && plan.slices == 2 * plan.warps) {
    prepare();
    const int all = static_cast<int>(tiles), warp = threadIdx.x / 32, first = 2 * warp;
    int job = routed_begin / all, tile = routed_begin - job * all;
    int load_job = job, load_tile = tile;
    const uint32_t tile_bytes = static_cast<uint32_t>(kTileRows * p.hidden / 2);
    const uint32_t tile_scales = static_cast<uint32_t>(kTileRows * (p.hidden / kKSlice));  // words
    const uint8_t* data[2];
    const uint32_t* scale[2];
    const auto enter = [&] {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const FewJobs::Packed& w = jobs.weights[load_job][m];
        data[m] = w.data + (load_tile * tile_bytes + first * kFp4SliceBytes + warp_lane * 16);
        scale[m] = reinterpret_cast<const uint32_t*>(w.scale) +
                   (load_tile * tile_scales + first * kTileRows + Fp4ScaleWord(warp_lane));
      }
    };
    enter();
    const auto advance = [&](Fp4Slices::Cursor(&at)[2]) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        at[m].data = data[m];
        at[m].scale = scale[m];
        data[m] += tile_bytes;
        scale[m] += tile_scales;
      }
      if (++load_tile == all) {
        load_tile = 0;
        ++load_job;
        if (load_job < p.experts_per_token) enter();
      }
    };
    constexpr int kSlots = kUpSlots<true>;
    PairStream<2, 1, kSlots> stream;
    stream.Begin(routed_end - routed_begin, advance);
    const RowSlices<2> row(staged, p.hidden, first);
    float* const own_products = products + first * 2 * kSlots * kProductStride;
    for (int begin = routed_begin; begin < routed_end; begin += kSlots) {
      const int count = min(kSlots, routed_end - begin);
      stream.Use(count, own_products, advance,
                 [&](int, int s, ReadyActs* acts, uint32_t* scale) { row.Get(s, acts, scale); });
      __syncthreads();
      if (warp < count) {
        const float value =
            FewSum<2, kSlots>(products, plan.slices, warp_lane / 16, warp, warp_lane % 16);
        const float up = __shfl_down_sync(0xffffffffu, value, 16);
        if (warp_lane < 16) {
          int slot_job = job, slot_tile = tile + warp;
          for (; slot_tile >= all; slot_tile -= all) ++slot_job;
          StoreBf16(work.hidden + slot_job * p.inter + slot_tile * kTileRows + warp_lane,
                    GatedProduct(RoundBf16(value), RoundBf16(up), p.limit, p.weights[slot_job]));
        }
      }
      tile += count;
      for (; tile >= all; tile -= all) ++job;
      __syncthreads();
    }
  } else if (routed_begin < routed_end) {
    prepare();
    const int all = static_cast<int>(tiles), first_job = routed_begin / all;
    const int first_tile = routed_begin - first_job * all;
    struct JobTile {
      int job, tile;
    };
    const auto of = [&](int segment) {
      JobTile at{first_job, first_tile + segment};
      for (; at.tile >= all; at.tile -= all) ++at.job;
      return at;
    };
    FewUp<Fp4Slices, kOneRow>(
        p, plan, routed_end - routed_begin, products, staged, [] {},
        [&](int segment, int matrix) {
          const JobTile at = of(segment);
          return jobs.Cursor(at.job, matrix, p.hidden, at.tile);
        },
        [&](int segment) { return kOneRow ? 1 : jobs.Rows(of(segment).job); },
        [&](int segment, int row) -> FewSlot {
          const JobTile at = of(segment);
          const int pair = jobs.pair[jobs.first[at.job] + row];
          return {kOneRow ? 0 : pair / p.experts_per_token,
                  work.hidden + pair * p.inter + at.tile * kTileRows, p.weights[pair]};
        });
  }
}

template <bool kOneRow>
constexpr int64_t FewUpBytes(int64_t hidden) {
  return FewProductBytes(hidden, 2, kUpSlots<kOneRow>) + (kOneRow ? OneRowBytes(hidden) : 0);
}
template <bool kOneRow>
constexpr int64_t FewDownBytes(int64_t inter) {
  return FewProductBytes(inter, 1, kDownSlots<kOneRow>) +
         (kOneRow ? kDownSlots<kOneRow> * OneRowBytes(inter) : 0);
}

template <bool kOneRow>
__global__ void __launch_bounds__(kFewThreads, kFewBlocks)
    expert_down_few_kernel(const __grid_constant__ ExpertFfnParams p,
                           const __grid_constant__ FfnWorkspace work,
                           const __grid_constant__ SplitPlan plan) {
  auto* const products = DynamicShared<float>();
  __shared__ FewJobs jobs;
  __shared__ uint16_t outputs[kFewPairs + kFewRows][kTileRows];
  std::byte* staged =
      reinterpret_cast<std::byte*>(products) + FewProductBytes(p.inter, 1, kDownSlots<kOneRow>);
  const int64_t staged_bytes = OneRowBytes(p.inter), quantised_bytes = QuantizedRowBytes(p.inter);
  const int64_t scale_bytes = kOneRow ? StagedScales(p.inter) : p.inter;
  const int64_t tile = blockIdx.x;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int pairs = p.rows * p.experts_per_token;

  FewStream<Fp8Slices, 1, 1, kDownSlots<kOneRow>, kOneRow> shared;
  const auto shared_cursor = [&](int, int) { return Fp8Slices::Cursor(p.shared_w2, tile, lane); };
  shared.Begin(plan, 1, shared_cursor);
  // No wait: the experts of the rows were written before the first half started.
  const FewWeights which = {&ExpertWeights::w2, &ExpertWeights::w2};
  if constexpr (kOneRow) {
    ListOneRow(p, which, p.shared_w2, &jobs);
    __syncthreads();
  } else {
    ListFewRows<kRoundRows>(p, which, &jobs);
  }
  FewStream<Fp4Slices, 1, 8 / Fp4Slices::kVectors, kDownSlots<kOneRow>, kOneRow> routed;
  const auto routed_cursor = [&](int job, int) { return jobs.Cursor(job, 0, p.inter, tile); };
  routed.Begin(plan, jobs.count, routed_cursor);
  BeginAfterPredecessors();

  // Segment 0 is the shared expert, segment 1 + j is job j.
  const auto rows_of = [&](int segment) {
    return kOneRow ? 1 : segment == 0 ? p.rows : jobs.Rows(segment - 1);
  };
  const auto hidden_of = [&](int segment, int row) {
    return segment == 0 ? pairs + row : jobs.pair[jobs.first[segment - 1] + row];
  };
  const int segments = jobs.count + 1;
  for (int begin = 0; begin < segments;) {
    const int end = RoundEnd<kDownSlots<kOneRow>>(begin, segments, rows_of);
    if constexpr (kOneRow) {
      // A segment is a slot. A warp quantises two rows.
      for (int slot = warp; slot < end - begin; slot += kFewThreads / 32) {
        const uint16_t* from = work.hidden + hidden_of(begin + slot, 0) * p.inter;
        std::byte* to = staged + slot * staged_bytes;
#pragma unroll 4
        for (int64_t base = 0; base < p.inter; base += 256) {
          const int64_t column = base + lane * 8;
          const bool active = column < p.inter;
          float v[8] = {};
          if (active) LoadBf16x8(from + column, v);
          const QuantizedEight q = Quantized(v);
          if (!active) continue;
          StageEight(q.low, q.high, column, to);
          if (lane % 16 == 0) to[scale_bytes + column / kQuantRun] = std::byte(q.scale);
        }
      }
      __syncthreads();
    }
    const auto row_of = [&](int segment, int row, int slot) -> const std::byte* {
      if constexpr (kOneRow) return staged + slot * staged_bytes;
      return reinterpret_cast<const std::byte*>(work.quantised) +
             hidden_of(segment, row) * quantised_bytes;
    };
    int slots = 0;
    if (begin == 0) {
      shared.Use(0, 1, 0, scale_bytes, products, shared_cursor, rows_of, row_of);
      slots = kOneRow ? 1 : p.rows;
    }
    routed.Use(
        max(begin - 1, 0), end - 1, slots, scale_bytes, products, routed_cursor,
        [&](int job) { return rows_of(job + 1); },
        [&](int job, int row, int slot) { return row_of(job + 1, row, slot); });
    __syncthreads();
    int row;
    const int slot = warp * 2 + lane / 16;
    const int segment = SegmentOf(begin, end, slot, &row, rows_of);
    if (segment < end) {
      const float value = FewSum<1, kDownSlots<kOneRow>>(products, plan.slices, 0, slot, lane % 16);
      StoreBf16(&outputs[hidden_of(segment, row)][lane % 16], value);
    }
    if (end < segments) __syncthreads();
    begin = end;
  }
  __syncthreads();
  // y = shared + (routed experts in their order), in f32, then rounded.
  const int row = threadIdx.x / kTileRows, column = threadIdx.x % kTileRows;
  if (row >= p.rows) return;
  float sum = 0;
  for (int i = 0; i < p.experts_per_token; ++i) {
    const int pair = row * p.experts_per_token + i;
    if (jobs.expert[pair] >= 0) sum += Bf16(outputs[pair][column]);
  }
  StoreBf16(static_cast<uint16_t*>(p.y) + row * p.hidden + tile * kTileRows + column,
            Bf16(outputs[pairs + row][column]) + sum);
}

}  // namespace dsv4::sm12x
