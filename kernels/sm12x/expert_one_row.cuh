// SPDX-License-Identifier: Apache-2.0
// MXFP4 experts of one row as one launch, where a block a multiprocessor has all of it: both halves
// of expert_few_rows.cuh with the same sums.
//
// Blocks have tiles of I in turn, so that all blocks work at the same expert at about the same
// time. Hidden values go to other blocks as marked words: a bf16 value in the low half and the
// number of the launch in the high half. A reader repeats its load until it finds the mark, so that
// there is neither a barrier of the grid nor a second kernel: blocks that are early go on with the
// tiles of D, whose weights they load while they wait.
//
// All blocks must be resident at once: a grid has at most one block a multiprocessor. They come to
// be, because every other kernel ends by itself; of kernels like this one only one runs at a time
// (Device::TakeWaitingBlocks).
//
// A warp has two K slices of each tile of w1 and w3 and one of each tile of w2, so D = 2 I.
#pragma once

#include "kernels/sm12x/arch/signals.cuh"
#include "kernels/sm12x/expert_few_rows.cuh"
#include "kernels/sm12x/expert_streams.cuh"

namespace dsv4::sm12x {

inline constexpr int kOneMostWarps = 16;
inline constexpr int kOneExperts = 6;     // most experts of the row
inline constexpr int kOneUpTiles = 16;    // most tiles of I of a block
inline constexpr int kOneDownTiles = 2;   // most tiles of D of a block
inline constexpr int kOneRoundTiles = 4;  // tiles of I that are added up at once
inline constexpr int kOneUpSlots = 2 * kOneRoundTiles;
inline constexpr int kOneDownSlots = kOneDownTiles * (kOneExperts + 1);
inline constexpr int kOneBatch = 4;  // experts whose hidden values are read at once

// The memory that the launches of a stream share (LaunchContext::marked).
struct OneRowWords {
  uint32_t launches;  // so far
  uint32_t unused[15];
  uint32_t hidden[1];  // [K + 1, I]: row 0 is the shared expert, row 1 + i is expert i of the row
};
constexpr int64_t OneRowWordsBytes(int64_t inter, int64_t experts_per_token) {
  return 64 + (experts_per_token + 1) * inter * int64_t{sizeof(uint32_t)};
}

// At the start of the block's dynamic shared memory.
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
                    p.expert_count <= warps * 32 && most >= tiles &&
                    OneRowSharedBytes(p.hidden, p.inter) <= kMaxSharedBytes - 1024 &&
                    OneRowWordsBytes(p.inter, p.experts_per_token) <= kMarkedBytes;
  return fits ? std::min((p.experts_per_token + 1) * tiles, most) : 0;
}

__device__ __forceinline__ Fp4Slices::Cursor CursorAt(const FewJobs::Packed& tile, int slice,
                                                      int lane) {
  Fp4Slices::Cursor at;
  at.data = tile.data + slice * kFp4SliceBytes + lane * 16;
  at.scale = reinterpret_cast<const uint32_t*>(tile.scale) + slice * kTileRows + Fp4ScaleWord(lane);
  return at;
}

__global__ void __launch_bounds__(kOneMostWarps * 32, 1)
    expert_one_row_kernel(const __grid_constant__ ExpertFfnParams p,
                          const __grid_constant__ SplitPlan plan, OneRowWords* words) {
  auto* const memory = DynamicShared<std::byte>();
  OneRowTables& tables = *reinterpret_cast<OneRowTables*>(memory);
  std::byte* const x = memory + (sizeof(OneRowTables) + 15) / 16 * 16;
  std::byte* const hidden = x + OneRowBytes(p.hidden);
  auto* const up_products =
      reinterpret_cast<float*>(hidden + (kOneExperts + 1) * OneRowBytes(p.inter));
  float* const down_products =
      up_products + FewProductBytes(p.hidden, 2, kOneUpSlots) / int64_t{sizeof(float)};
  const int thread = threadIdx.x, threads = blockDim.x, warp = thread / 32, lane = thread % 32;
  const int blocks = gridDim.x, me = blockIdx.x, experts = p.experts_per_token;
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
  BeginAfterPredecessors();
  const uint32_t mark = (words->launches + 1) << 16;
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
  {
    const int slice = 2 * warp;
    int next = shared_count;
    const auto advance = [&](Fp4Slices::Cursor(&at)[2]) {
#pragma unroll
      for (int m = 0; m < 2; ++m) at[m] = CursorAt(tables.up[next][m], slice, lane);
      ++next;
    };
    PairStream<2, 1, kOneUpSlots> routed;
    routed.Begin(count - shared_count, advance);
    shared.Use(
        0, shared_count, 0, StagedScales(p.hidden), up_products, shared_cursor,
        [](int) { return 1; }, [&](int, int, int) -> const std::byte* { return x; });
    const RowSlices<2> row(x, p.hidden, slice);
    float* const products = up_products + slice * 2 * kOneUpSlots * kProductStride;
#pragma unroll 1
    for (int begin = 0, base = 0; begin < count; begin += kOneRoundTiles, base ^= kOneRoundTiles) {
      const int end = min(begin + kOneRoundTiles, count), first = max(begin, shared_count);
      routed.Use(end - first, products + (base + first - begin) * kProductStride, advance,
                 [&](int, int s, ReadyActs* acts, uint32_t* scale) { row.Get(s, acts, scale); });
      // Products of the next round go to the other slots, and those of the round after it follow
      // the next barrier.
      __syncthreads();
      for (int i = warp; i < end - begin; i += threads / 32) {
        const float value =
            FewSum<2, kOneUpSlots>(up_products, plan.slices, lane / 16, base + i, lane % 16);
        const float up = __shfl_down_sync(0xffffffffu, value, 16);
        if (lane < 16) {
          const float h =
              GatedProduct(RoundBf16(value), RoundBf16(up), p.limit, tables.weight[begin + i]);
          StoreWordRelaxed(words->hidden + ((begin + i) * blocks + me) * kTileRows + lane,
                           (Bf16x2(h, 0) & 0xffffu) | mark);
        }
      }
    }
  }

  // Second half. A warp's K slice is the same of all tiles, so it reads and quantises the hidden
  // values of this slice alone.
  const int64_t scale_at = StagedScales(p.inter), staged = OneRowBytes(p.inter);
  float* const products = down_products + warp * kOneDownSlots * kProductStride + lane / 4;
  const auto add = [&](const auto& operand, const ReadyActs& acts, uint32_t scale, int slot) {
    float sum[4];
    SliceProduct<true>(operand, acts, scale, sum);
    if (lane % 4 == 0) {
      products[slot * kProductStride] = sum[0];
      products[slot * kProductStride + 8] = sum[2];
    }
  };
  if (down_tiles != 0) {
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
    const auto read = [&](int begin, int end) {
      const uint32_t* from = words->hidden + begin * p.inter + warp * kKSlice + lane * 4;
      uint4 found[kOneBatch];
      while (true) {
        uint32_t other = 0;
#pragma unroll
        for (int i = 0; i < kOneBatch; ++i) {
          found[i] = LoadWordsRelaxed(from + min(i, end - begin - 1) * p.inter);
        }
#pragma unroll
        for (int i = 0; i < kOneBatch; ++i) {
          other |=
              (found[i].x ^ mark) | (found[i].y ^ mark) | (found[i].z ^ mark) | (found[i].w ^ mark);
        }
        if (!__any_sync(0xffffffffu, other >> 16 != 0)) break;
        PauseForOtherBlocks();
      }
      float v[kOneBatch][4], amax[kOneBatch];
#pragma unroll
      for (int i = 0; i < kOneBatch; ++i) {
        v[i][0] = Bf16(static_cast<uint16_t>(found[i].x));
        v[i][1] = Bf16(static_cast<uint16_t>(found[i].y));
        v[i][2] = Bf16(static_cast<uint16_t>(found[i].z));
        v[i][3] = Bf16(static_cast<uint16_t>(found[i].w));
        amax[i] =
            fmaxf(fmaxf(fabsf(v[i][0]), fabsf(v[i][1])), fmaxf(fabsf(v[i][2]), fabsf(v[i][3])));
      }
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) {
#pragma unroll
        for (int i = 0; i < kOneBatch; ++i) {
          amax[i] = fmaxf(amax[i], __shfl_xor_sync(0xffffffffu, amax[i], offset));
        }
      }
#pragma unroll
      for (int i = 0; i < kOneBatch; ++i) {
        if (begin + i >= end) break;
        const uint32_t scale = QuantScale(amax[i]);
        const float inverse = InverseQuantScale(scale);
        const uint32_t codes = E4M3x2(v[i][0] * inverse, v[i][1] * inverse) |
                               static_cast<uint32_t>(E4M3x2(v[i][2] * inverse, v[i][3] * inverse))
                                   << 16;
        std::byte* const to = hidden + (begin + i) * staged;
        StageFour(codes, warp * kKSlice + lane * 4, to);
        if (lane == 0) to[scale_at + warp] = std::byte(scale);
      }
      __syncwarp();
    };
    const auto acts_of = [&](int row, uint32_t* scale) {
      const std::byte* const from = hidden + row * staged;
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
  // The block has read hidden values of all blocks, so all of them have read the number.
  if (me == 0 && thread == 0) words->launches = words->launches + 1;
  for (int i = thread / 16; i < (experts + 1) * kOneDownTiles; i += threads / 16) {
    if (i % kOneDownTiles < down_tiles) {
      StoreBf16(&tables.outputs[i][lane % 16],
                FewSum<1, kOneDownSlots>(down_products, plan.slices / 2, 0, i, lane % 16));
    }
  }
  __syncthreads();
  // y = shared + (routed experts in their order), in f32, then rounded.
  if (thread / 16 < down_tiles) {
    const int t = thread / 16;
    float sum = 0;
    for (int i = 0; i < experts; ++i) {
      if (tables.valid[i] != 0) {
        sum += Bf16(tables.outputs[(1 + i) * kOneDownTiles + t][lane % 16]);
      }
    }
    StoreBf16(static_cast<uint16_t*>(p.y) + (me + t * blocks) * kTileRows + lane % 16,
              Bf16(tables.outputs[t][lane % 16]) + sum);
  }
}

}  // namespace dsv4::sm12x
