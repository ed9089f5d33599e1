// SPDX-License-Identifier: Apache-2.0
// sparse_attention: o = softmax(q . rows * scale, with sink) . rows, then the inverse RoPE of the
// last 64 elements.
//
// Contract: kernels/op/attention.h; both pools packed, both bf16 or both fp8_per_tensor.
//
// Roofline: 584 (packed) or 512 (fp8_per_tensor) bytes a cache row and 2048 H bytes a query; 4 x
// 512 flops a head and row. P . V is computed three times, twice with fp8_per_tensor rows. One
// query is bound by latency; many by shared memory and the tensor cores. Measurements:
// docs/kernels.md.
//
// Plan (attention_chunk.cuh):
// - 16 heads of one query are the M of m16n8k16. Its rows come in chunks of 32: first the ring
//   slots of the window, then compressed blocks (docs/adr/0017).
// - Warps unpack the rows to bf16 in shared memory, which is exact. A warp computes the scores of
//   16 rows from a quarter of the elements, then P of two rows and heads, then P . V of 8 pieces of
//   8 elements.
// - Maxima are rounded up to whole powers of two, so that rescaling is exact.
// - Few queries: a block of 8 warps for each tile of heads and chunk. Sums of chunks go to the
//   workspace, and a second kernel adds them in order.
// - Many queries: a block of 16 warps, two tiles of 16 heads, goes through all chunks and keeps its
//   queries in registers. It makes the same additions in the same order, so results have the same
//   bits. The two tiles belong to one query, or to two neighbouring queries whose rows differ in at
//   most one per chunk. Rows of the next chunk are loaded while this one is summed.
// - Many queries, but few tiles: a block of 8 warps has one tile and two chunks in shared memory.
//   It multiplies the rows of one with P while it makes the scores of the next. The same additions.
// - fp8_per_tensor rows are unpacked to f16 in place, by a shift. P is then the sum of two f16
//   numbers, and the factor of a chunk's sums is applied where chunks are added.
//
// Accuracy: scores and sums are f32. P is the sum of three bf16 numbers, or of two f16 numbers.
//
// Edge cases: -1 in the selection is a row of weight 0; heads beyond H are computed from zeros and
// dropped; padding rows are skipped; with block_rows, a row sees up to 128 + block_rows window
// rows, in order.
//
// Credit: one slice of a row for keys and values, and 16 heads a block, as in FlashInfer's and
// b12x's kernels for SM120.
#include <algorithm>
#include <cmath>

#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/threads.cuh"
#include "kernels/sm12x/attention_chunk.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4 {
namespace sm12x::sparse_attention {

using namespace sm12x;  // NOLINT: the device code of this file

constexpr int kTileThreads = kSlices * 32;
constexpr int kTiles = 2;  // of a block for many queries
constexpr int64_t kSplitBytes = int64_t{256} << 20;

// kSplitUnits: up to so many pairs (row, head tile), blocks share the chunks of a pair.
// kSplitBlocks: over so many blocks in all, for each multiprocessor.
enum Knob { kSplitUnits, kSplitBlocks };
constexpr const char* kKnobs[] = {"split_units", "split_blocks_per_multiprocessor"};
constexpr KernelConfig kConfigs[] = {{{64, 6}},  {{64, 3}}, {{64, 4}},
                                     {{64, 12}}, {{32, 6}}, {{16, 6}}};
constexpr int64_t kMostSplitUnits = 64;  // of any config

// A thread's tile, its index and warp in the tile, and its lane. Computed anew for each use in the
// loop over chunks, so that it occupies no registers.
struct TileThread {
  int tile, in_tile, warp, lane;
  __device__ __forceinline__ explicit TileThread(int chunk) {
    const auto thread = static_cast<unsigned>(FreshThread(chunk));
    tile = static_cast<int>(thread / kTileThreads);
    in_tile = static_cast<int>(thread % kTileThreads);
    warp = static_cast<int>(thread % kTileThreads / 32);
    lane = static_cast<int>(thread % 32);
  }
};

struct ChunkShared {
  ChunkRow rows[kChunk];
  union {
    QueryTile queries;  // until the scores are made
    HeadPairs pairs;
  };
};

// Block (chunk, head tile, row): computes the sums of chunks blockIdx.x, + gridDim.x, ... into the
// workspace. bf16 rows take more registers while they are loaded.
template <RowFormat kFormat>
__global__ void __launch_bounds__(kTileThreads, kFormat == RowFormat::kBf16 ? 1 : 2)
    attend_chunks_kernel(const __grid_constant__ AttendArgs args) {
  LetSuccessorStart();
  __shared__ __align__(128) unsigned char memory[sizeof(ChunkShared)];
  ChunkShared& shared = *reinterpret_cast<ChunkShared*>(memory);
  const SparseAttentionParams& p = args.p;
  const int t = static_cast<int>(blockIdx.z);
  const int first_head = static_cast<int>(blockIdx.y) * kHeadTile;
  int chunk = static_cast<int>(blockIdx.x);
  const VisibleRows visible(args, t);
  FetchedSlice<kFormat, kChunk, RowStage::kNone> fetched;
  unsigned mask = 0;  // of the rows fetched
  // The KV block of 64 compressed blocks, loaded before it is known which are selected.
  const int near_block = visible.SelectableBlock(args, static_cast<int>(threadIdx.x) % 32);
  // Fetches the rows that exist and are not yet fetched. `early`, before the predecessors end: only
  // rows whose place is known and which earlier steps wrote.
  const auto fetch = [&](bool early) {
    const TileThread at(0);
    const int n = chunk * kChunk + at.lane;
    int index = -1;
    if ((mask >> at.lane & 1) == 0 && (!early || visible.KnownEarly(args, n))) {
      index = visible.IndexOf(args, n);
    }
    if (early && index >= 0 && !visible.WrittenEarly(args, n, index)) index = -1;
    const unsigned more = __ballot_sync(kAllLanes, index >= 0);
    if (more == 0) return;
    int block = __shfl_sync(kAllLanes, near_block, index >> 6 & 31);
    if (p.ratio != kCsaRatio || n < visible.window || index >> 6 > 31) {
      block = visible.BlockOf(args, n, index);
    }
    const std::byte *row, *scales;
    visible.Locate(args, n, index, block, &row, &scales);
    fetched.Load(row, scales, more, 0, -1, at.warp, at.lane);
    mask |= more;
  };
  fetched.Clear();
  fetch(true);
  WaitForPredecessors();
  if (chunk >= visible.chunks()) return;
  while (true) {
    {
      const TileThread at(0);
      FetchedQueries queries;
      queries.Load(args, t, first_head, at.in_tile);
      fetch(false);
      queries.template Store<kFormat>(at.in_tile, shared.queries);
      fetched.Store(0, -1, at.warp, at.lane, shared.rows);
    }
    __syncthreads();
    const RowPlaces rows{shared.rows, -1};
    {
      const TileThread at(0);
      ScoreSums sums = {};
      ScoreRows<kFormat>(QueryFragments(shared.queries, at.warp, at.lane), rows, at.warp, at.lane,
                         sums);
      __syncthreads();  // all warps have read the queries
      StoreScores(sums, at.warp, at.lane, shared.pairs);
    }
    __syncthreads();
    const int64_t first = (t * args.partials.chunks + chunk) * p.heads + first_head;
    {
      const TileThread at(0);
      const ChunkWeights weights = MakeWeights(at.warp, at.lane, mask, args.scale, shared.pairs);
      StoreParts<kFormat>(at.warp, at.lane, weights.weight, 1.0f, shared.pairs);
      const int head = HeadOf(at.warp, at.lane);
      if (at.lane % 16 == 0 && first_head + head < p.heads) {
        args.partials.weights[first + head] = make_float2(weights.maximum, weights.sum);
      }
    }
    __syncthreads();
    const PartFragments<kFormat> parts(shared.pairs, TileThread(0).lane);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const TileThread at(0);
      SumPair sums[2][2];
      SumRows(parts, rows, at.warp, j, at.lane, sums);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int head = at.lane / 4 + 8 * i;
        if (first_head + head >= p.heads) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          args.partials
              .o[(first + head) * (kKvRowElements / 2) + PartialOf(at.warp, j, half, at.lane % 4)] =
              make_float2(sums[half][i].of[0], sums[half][i].of[1]);
        }
      }
    }
    chunk += static_cast<int>(gridDim.x);
    if (chunk >= visible.chunks()) return;
    fetched.Clear();
    mask = 0;
    __syncthreads();  // all warps have read the rows and P
  }
}

// Rows of a chunk that a tile's warps fetch. Rows of codes are staged in shared memory, in the
// place of the scores: they are fetched after the scores have been read.
constexpr int kFetchRows = kChunk / kTiles;
template <RowFormat kFormat>
inline constexpr bool kHasCodes = kFormat != RowFormat::kBf16;
template <RowFormat kFormat>
using FetchedRows =
    FetchedSlice<kFormat, kFetchRows, kHasCodes<kFormat> ? RowStage::kPairs : RowStage::kNone>;

struct QueryShared {
  ChunkRow rows[kChunk + 1];
  QueryTile queries[kTiles];
  HeadPairs pairs[kTiles];
  float rescale[kTiles][kHeadTile];  // the factor of the sums so far; at the end, Inverse
  float scale[kTiles][kHeadTile];    // the factor of the chunk's sums, if P is not scaled
  VisibleRows visible[kTiles];
  unsigned mask[kTiles];    // the rows of the chunk that exist
  int replaced[2][kTiles];  // of an even and of an odd chunk, as in RowPlaces
};
static_assert(sizeof(QueryShared) <= 99 * 1024);

// The two tiles of a block, from a pair of neighbouring rows of the step and a pair of head tiles.
// If the two queries see almost the same cache rows (VisibleRows), a block has both queries and one
// head tile, else one query and both head tiles.
struct BlockTiles {
  bool works;           // whether the tile has work
  int row, first_head;  // of the thread's tile
  __device__ __forceinline__ BlockTiles(const AttendArgs& args, int tile) {
    const StepRows& step = args.step;
    const int first = static_cast<int>(blockIdx.y) * 2, side = static_cast<int>(blockIdx.x) % 2;
    bool shares = args.p.ratio != kCsaRatio && first + 1 < step.rows;
    if (shares) {
      const int sequence = step.sequence_of[first];
      shares = sequence >= 0 && sequence == step.sequence_of[first + 1] &&
               step.positions[first] + 1 == step.positions[first + 1];
    }
    row = first + (shares ? tile : side);
    first_head = (static_cast<int>(blockIdx.x) / 2 * kTiles + (shares ? side : tile)) * kHeadTile;
    works = row < step.rows && (!shares || first_head < args.p.heads);
  }
};

// Block (x: pair of head tiles, and which half of the work on it; y: pair of rows): computes the
// outputs of two tiles.
template <RowFormat kFormat>
__global__ void __launch_bounds__(kTiles* kTileThreads, 1)
    attend_query_kernel(const __grid_constant__ AttendArgs args) {
  QueryShared& shared = *AlignedDynamicShared<QueryShared>();
  const SparseAttentionParams& p = args.p;
  {
    const TileThread at(0);
    const BlockTiles tiles(args, at.tile);
    const VisibleRows visible(args, tiles.works ? tiles.row : 0);
    BeginAfterPredecessors();
    if (!tiles.works || visible.count == 0) return;
    if (at.in_tile == 0) shared.visible[at.tile] = visible;
    FetchedQueries queries;
    queries.Load(args, tiles.row, tiles.first_head, at.in_tile);
    queries.template Store<kFormat>(at.in_tile, shared.queries[at.tile]);
  }
  __syncthreads();

  FetchedRows<kFormat> fetched;
  // The index of row `lane` of the next chunk.
  int index = shared.visible[TileThread(0).tile].IndexOf(args, TileThread(0).lane);
  const auto fetch = [&](int chunk) {
    const TileThread at(chunk);
    const int n = chunk * kChunk + at.lane;
    const VisibleRows& visible = shared.visible[at.tile];
    const std::byte *row, *scales;
    visible.Locate(args, n, index, visible.BlockOf(args, n, index), &row, &scales);
    const unsigned mask = __ballot_sync(kAllLanes, index >= 0);
    // The other tile's rows differ in at most one. If row `replaced` differs, the tile that fetches
    // that half of the chunk puts its own row there; the other tile's row has a place of its own.
    int replaced = -1;
    if (p.ratio != kCsaRatio) {
      const int other = shared.visible[1 - at.tile].IndexOf(args, n);
      const unsigned differ = __ballot_sync(kAllLanes, index != other);
      if (differ != 0 && (differ >> at.tile * kFetchRows) % (1u << kFetchRows) == 0) {
        replaced = __ffs(static_cast<int>(differ)) - 1;
      }
    }
    if (at.in_tile == 0) {
      shared.mask[at.tile] = mask;
      shared.replaced[chunk % 2][at.tile] = replaced;
    }
    fetched.Clear();
    fetched.Load(row, scales, mask, at.tile * kFetchRows, replaced, at.warp, at.lane,
                 shared.pairs[at.tile]);
    index = visible.IndexOf(args, n + kChunk);
  };
  fetch(0);
  const QueryFragments queries(shared.queries[TileThread(0).tile], TileThread(0).warp,
                               TileThread(0).lane);
  SumPair o[8][2] = {};
  Running running;  // of the head whose P the thread computes
  float weights = 0;
  int chunk = 0;
  while (true) {
    __syncthreads();  // all warps have read the last chunk's rows and P
    {
      const TileThread at(chunk);
      fetched.Store(at.tile * kFetchRows, shared.replaced[chunk % 2][at.tile], at.warp, at.lane,
                    shared.rows, shared.pairs[at.tile]);
    }
    __syncthreads();
    {
      const TileThread at(chunk);
      const RowPlaces rows{shared.rows, shared.replaced[chunk % 2][at.tile]};
      ScoreSums sums = {};
      ScoreRows<kFormat>(queries, rows, at.warp, at.lane, sums);
      StoreScores(sums, at.warp, at.lane, shared.pairs[at.tile]);
      WaitAtBarrier(1 + at.tile, kTileThreads);
    }
    {
      const TileThread at(chunk);
      const ChunkWeights more =
          MakeWeights(at.warp, at.lane, shared.mask[at.tile], args.scale, shared.pairs[at.tile]);
      const float2 factors = running.Raise(more.maximum);
      weights = __fadd_rn(__fmul_rn(weights, factors.x), __fmul_rn(more.sum, factors.y));
      StoreParts<kFormat>(at.warp, at.lane, more.weight, factors.y, shared.pairs[at.tile]);
      if (at.lane % 16 == 0) {
        shared.rescale[at.tile][HeadOf(at.warp, at.lane)] = factors.x;
        if (!RowNumbers<kFormat>::kScaledParts) {
          shared.scale[at.tile][HeadOf(at.warp, at.lane)] = factors.y;
        }
      }
      WaitAtBarrier(1 + at.tile, kTileThreads);
    }
    if (kHasCodes<kFormat> && chunk + 1 < shared.visible[kTiles - 1].chunks()) fetch(chunk + 1);
    {
      const TileThread at(chunk);
      const float* rescale = &shared.rescale[at.tile][at.lane / 4];
      const float factors[2] = {rescale[0], rescale[8]};
      if (__any_sync(kAllLanes, factors[0] != 1.0f || factors[1] != 1.0f)) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          o[j][0].Scale(factors[0]);
          o[j][1].Scale(factors[1]);
        }
      }
    }
    const PartFragments<kFormat> parts(shared.pairs[TileThread(chunk).tile],
                                       TileThread(chunk).lane);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const TileThread at(chunk);
      const RowPlaces rows{shared.rows, shared.replaced[chunk % 2][at.tile]};
      SumPair sums[2][2];
      SumRows(parts, rows, at.warp, j, at.lane, sums);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if constexpr (RowNumbers<kFormat>::kScaledParts) {
            o[2 * j + half][i].Add(sums[half][i]);
          } else {
            o[2 * j + half][i].AddScaled(sums[half][i], shared.scale[at.tile][at.lane / 4 + 8 * i]);
          }
        }
      }
    }
    ++chunk;
    if (chunk == shared.visible[kTiles - 1].chunks()) break;
    if (!kHasCodes<kFormat>) fetch(chunk);
  }
  __syncthreads();  // all warps have read the factors
  const TileThread at(chunk);
  const BlockTiles tiles(args, at.tile);
  if (at.lane % 16 == 0) {
    const int in_tile = HeadOf(at.warp, at.lane), head = tiles.first_head + in_tile;
    shared.rescale[at.tile][in_tile] =
        Inverse(running.maximum, weights, head < p.heads ? p.sink[head] : 0.0f, args.unit);
  }
  __syncthreads();
  const float* rope = RopeOf(args, tiles.row);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = at.lane / 4 + 8 * i, head = tiles.first_head + row;
    if (head >= p.heads) continue;
    const float inverse = shared.rescale[at.tile][row];
    auto* to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.o) +
                                           (int64_t{tiles.row} * p.heads + head) * kKvRowElements);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int pair = PieceOf(at.warp, j / 2, j % 2) * 4 + at.lane % 4;
      to[pair] = OutputPair(o[j][i], inverse, RopePair(rope, pair));
    }
  }
}

// Of a block for one tile, with two chunks at a time.
struct TileShared {
  union {
    ChunkRow rows[2][kChunk];  // of even and of odd chunks
    struct {
      ChunkRow first[kChunk];
      QueryTile queries;  // until the second chunk's rows come
    };
  };
  ScorePair scores[kSlices];
  PartPair parts[kSlices];
  uint4 stage[(kChunk / 8 * kSlices + kChunk / 8) * 32];  // rows of codes on their way
  float rescale[kHeadTile];  // the factor of the sums so far; at the end, Inverse
  float scale[kHeadTile];    // the factor of the chunk's sums, if P is not scaled
};
static_assert(sizeof(TileShared) <= 99 * 1024);

// Block (head tile, row): as attend_query_kernel. An iteration makes the scores of chunk i + 1,
// adds P . V of chunk i, then makes P of chunk i + 1, puts the rows of chunk i + 2 where those of
// chunk i were, and fetches those of chunk i + 3.
template <RowFormat kFormat>
__global__ void __launch_bounds__(kTileThreads, 1)
    attend_tile_kernel(const __grid_constant__ AttendArgs args) {
  TileShared& shared = *AlignedDynamicShared<TileShared>();
  const SparseAttentionParams& p = args.p;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int t = static_cast<int>(blockIdx.y);
  const int first_head = static_cast<int>(blockIdx.x) * kHeadTile;
  const VisibleRows visible(args, t);
  const int chunks = visible.chunks();
  BeginAfterPredecessors();
  if (chunks == 0) return;
  using Fetched =
      FetchedSlice<kFormat, kChunk, kHasCodes<kFormat> ? RowStage::kPlain : RowStage::kNone>;
  Fetched fetched;
  typename Fetched::Stage* stage = nullptr;
  if constexpr (Fetched::kStaged) stage = shared.stage;
  unsigned fetched_mask = 0;  // of its rows that exist
  // Of row `lane` of the next chunk to fetch: index and KV block; of the chunk behind it: index.
  int index = visible.IndexOf(args, lane), next_index = visible.IndexOf(args, kChunk + lane);
  int block = visible.BlockOf(args, lane, index);
  Running running;  // of the head whose P the thread computes
  float weights = 0;
  {
    FetchedQueries of_tile;
    of_tile.Load(args, t, first_head, thread);
    of_tile.template Store<kFormat>(thread, shared.queries);
  }
  __syncthreads();
  const QueryFragments queries(shared.queries, warp, lane);
  SumPair o[8][2] = {};
  unsigned mask = 0;  // of the next chunk that is weighed
#pragma unroll 1
  for (int chunk = -3;; ++chunk) {
    const bool last = chunk + 1 == chunks;
    if (chunk + 1 >= 0 && !last) {
      const int next = (chunk + 1) % 2;
      ScoreSums sums = {};
      ScoreRows<kFormat>(queries, RowPlaces{shared.rows[next], -1}, warp, lane, sums);
      StoreScores(sums, warp, lane, shared.scores);
    }
    if (chunk >= 0) {
      {
        const float factors[2] = {shared.rescale[lane / 4], shared.rescale[lane / 4 + 8]};
        if (__any_sync(kAllLanes, factors[0] != 1.0f || factors[1] != 1.0f)) {
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            o[j][0].Scale(factors[0]);
            o[j][1].Scale(factors[1]);
          }
        }
      }
      const PartFragments<kFormat> parts(shared.parts, lane);
      const RowPlaces rows{shared.rows[chunk % 2], -1};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        SumPair sums[2][2];
        SumRows(parts, rows, warp, j, lane, sums);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            if constexpr (RowNumbers<kFormat>::kScaledParts) {
              o[2 * j + half][i].Add(sums[half][i]);
            } else {
              o[2 * j + half][i].AddScaled(sums[half][i], shared.scale[lane / 4 + 8 * i]);
            }
          }
        }
      }
      if (last) break;
    }
    // The next chunk's scores are there, and all warps have read this chunk's rows and factors.
    __syncthreads();
    if (chunk + 1 >= 0) {
      const ChunkWeights more = MakeWeights(warp, lane, mask, args.scale, shared.scores);
      const float2 factors = running.Raise(more.maximum);
      weights = __fadd_rn(__fmul_rn(weights, factors.x), __fmul_rn(more.sum, factors.y));
      StoreParts<kFormat>(warp, lane, more.weight, factors.y, shared.parts);
      if (lane % 16 == 0) {
        shared.rescale[HeadOf(warp, lane)] = factors.x;
        if (!RowNumbers<kFormat>::kScaledParts) shared.scale[HeadOf(warp, lane)] = factors.y;
      }
    }
    if (chunk + 2 >= 0 && chunk + 2 < chunks) {
      fetched.Store(0, -1, warp, lane, shared.rows[chunk & 1], stage);
      mask = fetched_mask;
    }
    const int n = (chunk + 3) * kChunk + lane;
    const std::byte *row, *scales;
    visible.Locate(args, n, index, block, &row, &scales);
    fetched_mask = __ballot_sync(kAllLanes, index >= 0);
    fetched.Clear();
    fetched.Load(row, scales, fetched_mask, 0, -1, warp, lane, stage);
    index = next_index;
    block = visible.BlockOf(args, n + kChunk, index);
    next_index = visible.IndexOf(args, n + 2 * kChunk);
    __syncthreads();
  }
  __syncthreads();  // all warps have read the factors
  if (lane % 16 == 0) {
    const int in_tile = HeadOf(warp, lane), head = first_head + in_tile;
    shared.rescale[in_tile] =
        Inverse(running.maximum, weights, head < p.heads ? p.sink[head] : 0.0f, args.unit);
  }
  __syncthreads();
  const float* rope = RopeOf(args, t);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane / 4 + 8 * i, head = first_head + row;
    if (head >= p.heads) continue;
    const float inverse = shared.rescale[row];
    auto* to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.o) +
                                           (int64_t{t} * p.heads + head) * kKvRowElements);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int pair = PieceOf(warp, j / 2, j % 2) * 4 + lane % 4;
      to[pair] = OutputPair(o[j][i], inverse, RopePair(rope, pair));
    }
  }
}

constexpr int kSumThreads = 128;  // of combine_chunks_kernel, with a pair of elements each
constexpr int kCombineBlocks = kKvRowElements / 2 / kSumThreads;  // of a head

// Block (part of the elements, head, row): adds the chunks of one head in order.
__global__ void __launch_bounds__(kSumThreads)
    combine_chunks_kernel(const __grid_constant__ AttendArgs args) {
  LetSuccessorStart();
  // Chunks loaded at a time: enough for 128 window rows and 512 compressed blocks.
  constexpr int kBatch = 20;
  constexpr int kUnrolled = 4;
  const SparseAttentionParams& p = args.p;
  const int64_t t = blockIdx.z, head = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int chunks = VisibleRows(args, static_cast<int>(t)).chunks();
  // The place in Partials::o, as in PartialOf.
  const int at = static_cast<int>(blockIdx.x * kSumThreads + threadIdx.x);
  const int pair = PieceOf(at / 32, at / 8 % 4, at / 4 % 2) * 4 + at % 4;
  const float sink = p.sink[head];
  const RopePair rope(RopeOf(args, t), pair);
  const int64_t first = t * args.partials.chunks * p.heads + head;
  const int stride = p.heads * (kKvRowElements / 2);
  const float2* from = args.partials.o + first * (kKvRowElements / 2) + at;
  WaitForPredecessors();
  if (chunks == 0) return;
  Running running;
  SumPair sum;
  float weights = 0;
  for (int begin = 0; begin < chunks; begin += kBatch) {
    const int batch = min(chunks - begin, kBatch);
    float2 of_lane = make_float2(kNoRows, 0);  // in lane i, chunk i's maximum and weights
    if (lane < batch) {
      of_lane = args.partials.weights[first + static_cast<int64_t>(begin + lane) * p.heads];
    }
    SumPair sums[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i >= batch) continue;
      const float2 sum = from[i * stride];
      sums[i] = {{sum.x, sum.y}};
    }
    from += kBatch * stride;
    float top = of_lane.x;  // the maximum of the chunks up to the lane's
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const float other = __shfl_up_sync(kAllLanes, top, offset);
      if (lane >= offset) top = fmaxf(top, other);
    }
    const float above = __shfl_up_sync(kAllLanes, top, 1);
    Running before;  // of the chunks before the lane's
    before.maximum = lane > 0 ? fmaxf(running.maximum, above) : running.maximum;
    const float2 factors = before.Raise(of_lane.x);
    const unsigned rescales = __ballot_sync(kAllLanes, factors.x != 1.0f);
    running.maximum = fmaxf(running.maximum, __shfl_sync(kAllLanes, top, 31));
    const float scaled_weights = __fmul_rn(of_lane.y, factors.y);
#pragma unroll
    for (int four = 0; four < kBatch; four += kUnrolled) {
      if (four >= batch) break;
        // Chunks beyond the last are zeros.
#pragma unroll
      for (int i = four; i < four + kUnrolled; ++i) {
        sums[i].Scale(__shfl_sync(kAllLanes, factors.y, i));
        const float factor = __shfl_sync(kAllLanes, factors.x, i);
        if ((rescales >> i & 1) != 0) {
          sum.Scale(factor);
          weights = __fmul_rn(weights, factor);
        }
        sum.Add(sums[i]);
        weights = __fadd_rn(weights, __shfl_sync(kAllLanes, scaled_weights, i));
      }
    }
  }
  auto* to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.o) +
                                         (t * p.heads + head) * kKvRowElements);
  to[pair] = OutputPair(sum, Inverse(running.maximum, weights, sink, args.unit), rope);
}

int64_t HeadTiles(const SparseAttentionParams& p) { return (p.heads + kHeadTile - 1) / kHeadTile; }

// The most chunks that a query of this engine has.
int64_t MaxChunks(const SparseAttentionParams& p) {
  int64_t rows = kWindowTokens + p.block_rows;
  if (p.ratio != 0) {
    const int64_t visible = VisibleCompressedBlocks(p.step->max_position, p.ratio);
    rows += p.ratio == kCsaRatio ? std::min<int64_t>(visible, p.topk) : visible;
  }
  return (rows + kChunk - 1) / kChunk;
}

int64_t SplitRowBytes(const SparseAttentionParams& p) {
  return MaxChunks(p) * p.heads * (kKvRowElements / 2 + 1) * static_cast<int64_t>(sizeof(float2));
}

// Up to so many rows of a step, blocks share the chunks of a row.
int64_t SplitRows(const SparseAttentionParams& p, int64_t units) {
  return std::min(units / HeadTiles(p), kSplitBytes / SplitRowBytes(p));
}

int64_t WorkspaceSparseAttention(const SparseAttentionParams& p, int) {
  return std::min<int64_t>(p.step->rows, SplitRows(p, kMostSplitUnits)) * SplitRowBytes(p);
}

absl::Status SupportsSparseAttention(const SparseAttentionParams& p) {
  if (absl::Status status = SupportsSm12xRows(p); !status.ok()) return status;
  if (p.ratio != 0 && p.window.format != p.compressed.format) {
    return Unsupported("window rows in format ", RowFormatName(p.window.format),
                       " with compressed rows in format ", RowFormatName(p.compressed.format));
  }
  return absl::OkStatus();
}

template <RowFormat kFormat>
void LaunchRows(const LaunchContext& context, const SparseAttentionParams& params) {
  cudaStream_t stream = CudaStreamOf(context);
  const KernelConfig& config = ConfigOf(context, kConfigs);
  const int64_t rows = params.step->rows, tiles = HeadTiles(params), chunks = MaxChunks(params);
  constexpr float kUnit = RowNumbers<kFormat>::kUnit;
  AttendArgs args{.p = params,
                  .step = *params.step,
                  .scale = params.softmax_scale * kLog2E * kUnit,
                  .unit = kUnit,
                  .partials = {}};
  if (rows > SplitRows(params, config.values[kSplitUnits])) {
    // One tile a block where multiprocessors would else be idle, or half of each block, and rows
    // are not shared.
    if (rows * tiles <= context.multiprocessors || (tiles == 1 && params.ratio == kCsaRatio)) {
      const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(rows));
      LaunchOverlapped(stream, grid, kTileThreads, sizeof(TileShared), attend_tile_kernel<kFormat>,
                       args);
      return;
    }
    const dim3 grid(static_cast<unsigned>((tiles + kTiles - 1) / kTiles * 2),
                    static_cast<unsigned>((rows + 1) / 2));
    LaunchOverlapped(stream, grid, kTiles * kTileThreads, sizeof(QueryShared),
                     attend_query_kernel<kFormat>, args);
    return;
  }
  const int64_t partials = rows * chunks * params.heads;
  args.partials.o = reinterpret_cast<float2*>(context.workspace);
  args.partials.weights = args.partials.o + partials * (kKvRowElements / 2);
  args.partials.chunks = chunks;
  const int64_t blocks = int64_t{config.values[kSplitBlocks]} * context.multiprocessors;
  const int64_t splits = std::min(chunks, std::max<int64_t>(1, blocks / (rows * tiles)));
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(rows));
  LaunchOverlapped(stream, grid, kTileThreads, 0, attend_chunks_kernel<kFormat>, args);
  const dim3 combine_grid(kCombineBlocks, static_cast<unsigned>(params.heads),
                          static_cast<unsigned>(rows));
  LaunchOverlapped(stream, combine_grid, kSumThreads, 0, combine_chunks_kernel, args);
}

void LaunchSparseAttention(const LaunchContext& context, const SparseAttentionParams& params) {
  switch (params.window.format) {
    case RowFormat::kPacked:
      return LaunchRows<RowFormat::kPacked>(context, params);
    case RowFormat::kFp8PerTensor:
      return LaunchRows<RowFormat::kFp8PerTensor>(context, params);
    default:
      return LaunchRows<RowFormat::kBf16>(context, params);
  }
}

}  // namespace sm12x::sparse_attention
using namespace sm12x::sparse_attention;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xSparseAttention =
    MakeSm12xEntry<SparseAttentionParams, &LaunchSparseAttention, &SupportsSparseAttention,
                   &WorkspaceSparseAttention>("sm12x.sparse_attention", 2, {kKnobs, kConfigs});

}  // namespace dsv4
