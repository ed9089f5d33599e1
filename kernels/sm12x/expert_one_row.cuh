// SPDX-License-Identifier: Apache-2.0
// Phase of a step program, and a launch of its own: MXFP4 experts of one row, both halves of
// expert_few_rows.cuh with the same sums, where a block a multiprocessor has all of it.
//
// Blocks have tiles of I in turn, so that all blocks work at the same expert at about the same
// time. Hidden values go to other blocks as words (step_words.cuh): blocks that are early go on
// with the tiles of D, whose weights they load while they wait.
//
// A warp has two K slices of each tile of w1 and w3 and one of each tile of w2, so D = 2 I. Other
// warps have none.
#pragma once

#include "kernels/sm12x/expert_few_rows.cuh"
#include "kernels/sm12x/expert_streams.cuh"
#include "kernels/sm12x/step_linear.cuh"

namespace dsv4::sm12x {

inline constexpr int kOneMostWarps = kProgramThreads / 32;
inline constexpr int kOneExperts = 6;     // most experts of the row
inline constexpr int kOneUpTiles = 16;    // most tiles of I of a block
inline constexpr int kOneDownTiles = 2;   // most tiles of D of a block
inline constexpr int kOneRoundTiles = 4;  // tiles of I that are added up at once
inline constexpr int kOneUpSlots = 2 * kOneRoundTiles;
inline constexpr int kOneDownSlots = kOneDownTiles * (kOneExperts + 1);
inline constexpr int kOneBatch = 4;  // experts whose hidden values are read at once

// Bytes of the words of hidden values, [K + 1, I]: row 0 is the shared expert, row 1 + i is expert
// i of the row.
constexpr int64_t HiddenWordsBytes(int64_t inter, int64_t experts_per_token) {
  return (experts_per_token + 1) * inter * int64_t{kActBytes};
}

// In the block's dynamic shared memory, behind the staged row.
struct OneRowTables {
  FewJobs::Packed chosen[kOneExperts][3];  // w1, w3 and w2 of the row's experts
  FewJobs::Packed up[kOneUpTiles][2];      // tiles of w1 and w3
  FewJobs::Packed down[kOneExperts][kOneDownTiles];
  float weight[kOneUpTiles];  // of the tile's expert
  int32_t valid[kOneExperts];
  uint16_t outputs[kOneDownSlots][kTileRows];
};

constexpr int64_t OneRowSharedBytes(int64_t hidden, int64_t inter) {
  return (int64_t{sizeof(OneRowTables)} + 15) / 16 * 16 + FewProductBytes(hidden, 2, kOneUpSlots) +
         OneRowBytes(hidden) + FewProductBytes(inter, 1, kOneDownSlots) +
         (kOneExperts + 1) * OneRowBytes(inter);
}

// The blocks of a launch, at most `most`; 0 if another kernel computes it.
inline int64_t OneRowBlocks(const ExpertFfnParams& p, int64_t most) {
  const int64_t tiles = p.inter / kTileRows, warps = p.inter / kKSlice;
  const bool fits = p.rows == 1 && p.part == ExpertPart::kWhole && p.wave == ExpertWave::kAll &&
                    p.format == ExpertFormat::kMxfp4 && p.hidden == 2 * p.inter &&
                    warps <= kOneMostWarps && p.experts_per_token <= kOneExperts &&
                    p.expert_count <= kProgramThreads && most >= tiles &&
                    OneRowSharedBytes(p.hidden, p.inter) <= kMaxSharedBytes - 1024 &&
                    HiddenWordsBytes(p.inter, p.experts_per_token) <= kWordsBytes;
  return fits ? std::min((p.experts_per_token + 1) * tiles, most) : 0;
}

__device__ __forceinline__ Fp4Slices::Cursor CursorAt(const FewJobs::Packed& tile, int slice,
                                                      int lane) {
  Fp4Slices::Cursor at;
  at.data = tile.data + slice * kFp4SliceBytes + lane * 16;
  at.scale = reinterpret_cast<const uint32_t*>(tile.scale) + slice * kTileRows + Fp4ScaleWord(lane);
  return at;
}

// begin() waits for predecessors and returns the launch's words.
template <class Begin>
__device__ __forceinline__ void RunExperts(const ExpertPhase& phase, std::byte* shared_memory,
                                           Begin&& begin) {
  const ExpertFfnParams& p = phase.p;
  constexpr int threads = kProgramThreads;
  std::byte* const x = shared_memory;
  OneRowTables& tables = *reinterpret_cast<OneRowTables*>(x + OneRowBytes(p.hidden));
  std::byte* const hidden = x + OneRowBytes(p.hidden) + (sizeof(OneRowTables) + 15) / 16 * 16;
  auto* const up_products =
      reinterpret_cast<float*>(hidden + (kOneExperts + 1) * OneRowBytes(p.inter));
  float* const down_products =
      up_products + FewProductBytes(p.hidden, 2, kOneUpSlots) / int64_t{sizeof(float)};
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int blocks = gridDim.x, me = blockIdx.x, experts = p.experts_per_token;
  const SplitPlan plan{static_cast<int>(p.hidden / kKSlice), kProgramShift, kOneMostWarps};
  // Tile t of [K + 1, I] is tile t % tiles of the shared expert, then of the row's experts in their
  // order. The block has tiles me, me + blocks, .. of them, and of D.
  const int tiles = p.inter / kTileRows, rows = p.hidden / kTileRows;
  const int count = ((experts + 1) * tiles - me + blocks - 1) / blocks;
  const int shared_count = me < tiles ? 1 : 0;
  const int down_tiles = me >= rows ? 0 : me + blocks < rows ? 2 : 1;
  // Weights and the table of experts are constant.
  if (shared_count != 0 && thread < 2) {
    const int64_t bytes = kTileRows * p.hidden;
    PrefetchBulk((thread == 0 ? p.shared_w1 : p.shared_w3).data + me * bytes,
                 static_cast<uint32_t>(bytes));
  }
  FewJobs::Packed own[3];  // of expert `thread`
  if (thread < p.expert_count) {
    const ExpertWeights& all = *p.experts_table[thread];
    own[0] = {all.w1.data, all.w1.scale};
    own[1] = {all.w3.data, all.w3.scale};
    own[2] = {all.w2.data, all.w2.scale};
  }
  FewStream<Fp8Slices, 2, 1, kOneUpSlots, true> shared;
  const auto shared_cursor = [&](int, int matrix) {
    return Fp8Slices::Cursor(matrix == 0 ? p.shared_w1 : p.shared_w3, me, lane);
  };
  shared.Begin(plan, shared_count, shared_cursor);
  const LaunchWords& words = begin();
  int32_t chosen[kOneExperts];
#pragma unroll
  for (int i = 0; i < kOneExperts; ++i) chosen[i] = i < experts ? p.experts[i] : -1;
  StageQuantized(InputRow(p, 0), p.hidden, threads, x);
#pragma unroll
  for (int i = 0; i < kOneExperts; ++i) {
    const bool valid = chosen[i] >= 0 && chosen[i] < p.expert_count;
    if (thread == chosen[i]) {
#pragma unroll
      for (int m = 0; m < 3; ++m) tables.chosen[i][m] = own[m];
    }
    if (thread == 0) {
      tables.valid[i] = valid ? 1 : 0;
      if (!valid) {  // any bytes: its products are not used
        tables.chosen[i][0] = tables.chosen[i][1] = {p.shared_w1.data, p.shared_w1.data};
        tables.chosen[i][2] = {p.shared_w2.data, p.shared_w2.data};
      }
    }
  }
  __syncthreads();
  const auto tile_of = [](const FewJobs::Packed& w, int64_t k, int tile) -> FewJobs::Packed {
    return {w.data + tile * (kTileRows * k / 2), w.scale + tile * (kTileRows * 4 * k / kKSlice)};
  };
  for (int i = thread; i < kOneUpTiles * 2; i += threads) {
    const int at = (i / 2) * blocks + me;
    if (at >= (experts + 1) * tiles) continue;
    const int job = at / tiles - 1;
    if (job >= 0) {
      tables.up[i / 2][i % 2] = tile_of(tables.chosen[job][i % 2], p.hidden, at % tiles);
    }
    tables.weight[i / 2] = job < 0 ? 1.0f : p.weights[job];
  }
  for (int i = threads - 1 - thread; i < experts * kOneDownTiles; i += threads) {
    const int t = i % kOneDownTiles;
    if (t < down_tiles) {
      tables.down[i / kOneDownTiles][t] =
          tile_of(tables.chosen[i / kOneDownTiles][2], p.inter, me + t * blocks);
    }
  }
  __syncthreads();

  // First half.
  const int warps = p.inter / kKSlice;  // with K slices
  {
    const int slice = min(2 * warp, 2 * warps - 2);
    int next = shared_count;
    const auto advance = [&](Fp4Slices::Cursor(&at)[2]) {
#pragma unroll
      for (int m = 0; m < 2; ++m) at[m] = CursorAt(tables.up[next][m], slice, lane);
      ++next;
    };
    PairStream<2, 1, kOneUpSlots> routed;
    routed.Begin(warp < warps ? count - shared_count : 0, advance);
    shared.Use(
        0, shared_count, 0, StagedScales(p.hidden), up_products, shared_cursor,
        [](int) { return 1; }, [&](int, int, int) -> const std::byte* { return x; });
    const RowSlices<2> row(x, p.hidden, slice);
    float* const products = up_products + slice * 2 * kOneUpSlots * kProductStride;
#pragma unroll 1
    for (int begin = 0, base = 0; begin < count; begin += kOneRoundTiles, base ^= kOneRoundTiles) {
      const int end = min(begin + kOneRoundTiles, count), first = max(begin, shared_count);
      routed.Use(warp < warps ? end - first : 0, products + (base + first - begin) * kProductStride,
                 advance,
                 [&](int, int s, ReadyActs* acts, uint32_t* scale) { row.Get(s, acts, scale); });
      // Products of the next round go to the other slots, and those of the round after it follow
      // the next barrier.
      __syncthreads();
      for (int i = warp; i < end - begin; i += threads / 32) {
        const float value =
            FewSum<2, kOneUpSlots>(up_products, plan.slices, lane / 16, base + i, lane % 16);
        const float up = __shfl_down_sync(0xffffffffu, value, 16);
        const float h =
            GatedProduct(RoundBf16(value), RoundBf16(up), p.limit, tables.weight[begin + i]);
        const float other = __shfl_down_sync(0xffffffffu, h, 1);
        if (lane < 16 && lane % 2 == 0) {
          PublishWord(
              words.At(phase.hidden_words) + (((begin + i) * blocks + me) * kTileRows + lane) / 2,
              Bf16x2(h, other));
        }
      }
    }
  }

  // Second half. A warp's K slice is the same of all tiles, so it reads and quantises the hidden
  // values of this slice alone.
  const int64_t scale_at = StagedScales(p.inter), staged_bytes = OneRowBytes(p.inter);
  float* const products = down_products + warp * kOneDownSlots * kProductStride + lane / 4;
  const auto add = [&](const auto& operand, const ReadyActs& acts, uint32_t scale, int slot) {
    float sum[4];
    SliceProduct<true>(operand, acts, scale, sum);
    if (lane % 4 == 0) {
      products[slot * kProductStride] = sum[0];
      products[slot * kProductStride + 8] = sum[2];
    }
  };
  if (down_tiles != 0 && warp < warps) {
    Fp8Slices::Raw of_shared[kOneDownTiles];
#pragma unroll
    for (int t = 0; t < kOneDownTiles; ++t) {
      if (t < down_tiles) {
        Fp8Slices::Cursor(p.shared_w2, me + t * blocks, lane).Load(warp, &of_shared[t]);
      }
    }
    Fp4Slices::Raw held[kOneDownTiles];
    const auto load = [&](int expert) {
#pragma unroll
      for (int t = 0; t < kOneDownTiles; ++t) {
        if (t < down_tiles) CursorAt(tables.down[expert][t], warp, lane).Load(0, &held[t]);
      }
    };
    load(0);
    // Of experts begin .. end - 1: 16 lanes have the K slice of one.
    const auto read = [&](int begin, int end) {
      const uint32_t* const from =
          words.At(phase.hidden_words) + (warp * kKSlice + lane % 16 * 8) / 2;
      uint4 found[kOneBatch / 2];
      AwaitWords(found, [&](int i) {
        return from + min(begin + 2 * i + lane / 16, end - 1) * (p.inter / 2);
      });
#pragma unroll
      for (int i = 0; i < kOneBatch / 2; ++i) {
        float v[8];
        UnpackBf16x8(found[i], v);
        const int row = begin + 2 * i + lane / 16;
        StageRounded(v, row < end, warp * kKSlice + lane % 16 * 8, p.inter,
                     hidden + row * staged_bytes);
      }
      __syncwarp();
    };
    const auto acts_of = [&](int row, uint32_t* scale) {
      const std::byte* const from = hidden + row * staged_bytes;
      *scale = *reinterpret_cast<const uint8_t*>(from + scale_at + warp);
      return LoadStaged(from + warp * kStagedSlice, lane % 4);
    };
    read(0, min(kOneBatch, experts + 1));
    {
      uint32_t scale;
      const ReadyActs acts = acts_of(0, &scale);
#pragma unroll
      for (int t = 0; t < kOneDownTiles; ++t) {
        if (t < down_tiles) add(of_shared[t].Unpacked(), acts, scale, t);
      }
    }
#pragma unroll 1
    for (int row = 1; row <= experts; ++row) {
      if (row % kOneBatch == 0) read(row, min(row + kOneBatch, experts + 1));
      uint32_t scale;
      const ReadyActs acts = acts_of(row, &scale);
#pragma unroll
      for (int t = 0; t < kOneDownTiles; ++t) {
        if (t < down_tiles) add(held[t].Unpacked(), acts, scale, row * kOneDownTiles + t);
      }
      if (row < experts) load(row);
    }
  }
  __syncthreads();
  for (int i = thread / 16; i < (experts + 1) * kOneDownTiles; i += threads / 16) {
    if (i % kOneDownTiles < down_tiles) {
      StoreBf16(&tables.outputs[i][lane % 16],
                FewSum<1, kOneDownSlots>(down_products, plan.slices / 2, 0, i, lane % 16));
    }
  }
  __syncthreads();
  // y = shared + (routed experts in their order), in f32, then rounded.
  if (warp == 0 && down_tiles != 0) {
    const int t = min(lane / 16, down_tiles - 1);
    float sum = 0;
    for (int i = 0; i < experts; ++i) {
      if (tables.valid[i] != 0) {
        sum += Bf16(tables.outputs[(1 + i) * kOneDownTiles + t][lane % 16]);
      }
    }
    const float y = Bf16(tables.outputs[t][lane % 16]) + sum;
    const float other = __shfl_down_sync(0xffffffffu, y, 1);
    if (lane % 2 == 0 && lane / 16 < down_tiles) {
      const int64_t at = ((me + t * blocks) * kTileRows + lane % 16) / 2;
      const uint32_t pair = Bf16x2(y, other);
      if (phase.y_words != kNoWords) PublishWord(words.At(phase.y_words) + at, pair);
      static_cast<uint32_t*>(p.y)[at] = pair;
    }
  }
}

}  // namespace dsv4::sm12x
