// SPDX-License-Identifier: Apache-2.0
// sparse_attention: o = softmax(q . rows * scale, with sink) . rows, then the inverse RoPE of its
// tail. Contract: kernels/op/attention.h; both pools packed or both bf16. Roofline: 584 bytes a row
// of the cache and 2048 H of a query; 4 x 512 flops a head and row, of which q . row is done twice
// and P . V four times. Latency at one query; at many, instructions (a third of them add sums in
// pairs of f32), then tensor cores.
//
// Plan (attention_chunk.cuh): 16 heads of one query are the M of m16n8k16; its rows come in chunks
// of 32, which warps widen to bf16 in shared memory (exact). A warp makes the scores of 8 rows from
// half of the elements, then P of two rows and heads, then P . V of 8 pieces of 8 elements. Maxima
// are rounded up to whole powers of two, so that rescaling is exact. Few queries: a block of 8
// warps for each tile of heads and chunk; chunks' sums go to the workspace, and a second kernel
// adds them in order. 48 KB: rows 32, then queries or scores and P 16. Many: a block of 16 warps,
// two tiles of heads, goes through all chunks of a query, with the same additions in the same
// order, and so the same bits. Rows of the next chunk are on their way while this one is summed. 92
// KB: rows 32, queries 32, scores or codes 18, P 8.
//
// Accuracy: outputs to about 2^-30 of their head's rms, so that bf16 rounds a few in a million
// apart from exact sums. Tensor cores cut sums off below 2^-24 of the largest: hence factors of so
// few bits that most sums are exact, apart from small rests; scores, exponentials and sums are
// pairs. Edge cases: -1 in the selection is a row of weight 0; heads beyond H are computed from
// zeros and dropped; padding rows are skipped.
//
// Measured on an H200 by the portable twins, 2026-11-21, H = 64: one row at 2K of context 7.3 us at
// ratio 0, 8.7 at 4, 8.2 at 128, and 13 at 128 and 128K; 4,096 rows of a prefill at ratio 4 6.6 ms,
// 41 TFLOP/s of the 4 x 512 flops above.
//
// Credit: slices of one row for keys and values, and 16 heads a block, as in FlashInfer's and
// b12x's kernels for SM120.
#include <algorithm>
#include <cmath>

#include "kernels/sm12x/attention_chunk.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4 {
namespace {

using namespace sm12x;  // NOLINT: the device code of this file

constexpr int kTileThreads = kSlices * 32;
constexpr int kTiles = 2;  // of a block for many queries
constexpr int64_t kSplitBytes = int64_t{256} << 20;

// Most (row, head tile) pairs of a step whose chunks are shared out over blocks; over how many, for
// each multiprocessor.
enum Knob { kSplitUnits, kSplitBlocks };
constexpr const char* kKnobs[] = {"split_units", "split_blocks_per_multiprocessor"};
constexpr KernelConfig kConfigs[] = {{{64, 6}},  {{64, 3}}, {{64, 4}},
                                     {{64, 12}}, {{32, 6}}, {{16, 6}}};
constexpr int64_t kMostSplitUnits = 64;  // of any config

// Which tile of the block's, thread and warp of the tile, and lane a thread is. Made anew for each
// use in the loop over chunks, so that nothing of it is kept in registers.
struct TileThread {
  int tile, in_tile, warp, lane;
  __device__ __forceinline__ explicit TileThread(int chunk) {
    const int thread = FreshThread(chunk);
    tile = thread / kTileThreads;
    in_tile = thread % kTileThreads;
    warp = in_tile / 32;
    lane = thread % 32;
  }
};

struct ChunkShared {
  ChunkRows rows;
  union {
    QueryTile queries;  // until the scores are made
    struct {
      ChunkScores scores;
      ChunkParts parts;
    };
  };
};

// Block (chunk, head tile, row): the sums of chunks blockIdx.x, + gridDim.x, ... to the workspace.
template <bool kPacked>
__global__ void __launch_bounds__(kTileThreads, 2)
    attend_chunks_kernel(const __grid_constant__ AttendArgs args) {
  __shared__ __align__(128) unsigned char memory[sizeof(ChunkShared)];
  ChunkShared& shared = *reinterpret_cast<ChunkShared*>(memory);
  const SparseAttentionParams& p = args.p;
  const int t = static_cast<int>(blockIdx.z);
  const int first_head = static_cast<int>(blockIdx.y) * kHeadTile;
  int chunk = static_cast<int>(blockIdx.x);
  const VisibleRows visible(args, t);
  FetchedSlice<kPacked, kChunk, false> fetched;
  unsigned mask = 0;  // of the rows fetched
  // The block of 64 selected groups, loaded before it is known which are selected.
  const int near_block = visible.SelectableBlock(args, static_cast<int>(threadIdx.x) % 32);
  // Fetches the rows that there are; `early`, those that are there before the predecessors end:
  // where they lie is known, and earlier steps wrote them.
  const auto fetch = [&](bool early) {
    const TileThread at(0);
    const int n = chunk * kChunk + at.lane;
    int index = -1;
    if ((mask >> at.lane & 1) == 0 && (!early || visible.KnownEarly(args, n))) {
      index = visible.IndexOf(args, t, n);
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
    fetched.Load(row, scales, more, 0, at.warp, at.lane);
    mask |= more;
  };
  fetched.Clear();
  fetch(true);
  BeginAfterPredecessors();
  if (chunk >= visible.chunks()) return;
  while (true) {
    {
      const TileThread at(0);
      FetchedQueries queries;
      queries.Load(args, t, first_head, at.in_tile);
      fetch(false);
      queries.Store(at.in_tile, shared.queries);
      fetched.Store(0, at.warp, at.lane, shared.rows);
    }
    __syncthreads();
    {
      const TileThread at(0);
      TwoFloat sums[4];
      ScoreRows<false>(shared.queries, shared.rows, at.warp, at.lane, args.all_lanes, sums);
      __syncthreads();  // nobody reads the queries any more
      StoreScores(sums, at.warp, at.lane, shared.scores);
    }
    __syncthreads();
    const ChunkWeights weights =
        MakeWeights(TileThread(0).in_tile, mask, args.scale, shared.scores);
    StoreParts(TileThread(0).in_tile, weights, 1.0f, shared.parts);
    __syncthreads();
    const int64_t first = (t * args.partials.chunks + chunk) * p.heads + first_head;
    const PartFragments<true> parts(shared.parts, TileThread(0).lane);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const TileThread at(0);
      SumPair sums[2][2];
      SumRows(parts, shared.rows, at.warp, j, at.lane, sums);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int head = at.lane / 4 + 8 * i;
        if (first_head + head >= p.heads) continue;
        const int64_t to =
            (first + head) * (kKvRowElements / 4) + PartialOf(at.warp, j, at.lane % 4);
        reinterpret_cast<float4*>(args.partials.o)[to] =
            make_float4(sums[0][i].hi[0], sums[0][i].hi[1], sums[1][i].hi[0], sums[1][i].hi[1]);
        reinterpret_cast<uint2*>(args.partials.o_low)[to] =
            make_uint2(sums[0][i].lo, sums[1][i].lo);
      }
    }
    {
      const TileThread at(0);
      const TwoFloat sum = SumOfWeights(weights);
      const int head = at.in_tile / 16;
      if (at.lane % 16 == 0 && first_head + head < p.heads) {
        args.partials.maximum[first + head] = weights.maximum;
        args.partials.weights[first + head] = sum;
      }
    }
    chunk += static_cast<int>(gridDim.x);
    if (chunk >= visible.chunks()) return;
    fetched.Clear();
    mask = 0;
    __syncthreads();  // nobody reads the rows and P any more
  }
}

// Rows of a chunk that a tile's warps fetch: packed ones come by shared memory, behind one another
// with the scores, since they are fetched when those are used up.
constexpr int kFetchRows = kChunk / kTiles;
template <bool kPacked>
using FetchedRows = FetchedSlice<kPacked, kFetchRows, kPacked>;

struct QueryShared {
  ChunkRows rows;
  QueryTile queries[kTiles];
  union {
    ChunkScores scores;
    uint4 stage[FetchedRows<true>::kStageVectors];
  } tiles[kTiles];
  ChunkParts parts[kTiles];
  float rescale[kTiles][kHeadTile];  // what the chunk makes of the sums before it
  // What all chunks so far come to, before an even and before an odd chunk.
  Running running[2][kTiles][kHeadTile];
  VisibleRows visible;
  unsigned mask[kTiles];  // the chunk's rows that there are
};

// Block (pair of head tiles, row): the output of one query.
template <bool kPacked>
__global__ void __launch_bounds__(kTiles* kTileThreads, 1)
    attend_query_kernel(const __grid_constant__ AttendArgs args) {
  extern __shared__ __align__(128) unsigned char dynamic_memory[];
  QueryShared& shared = *reinterpret_cast<QueryShared*>(dynamic_memory);
  const SparseAttentionParams& p = args.p;
  const auto t = static_cast<int>(blockIdx.y);
  const int first_head = static_cast<int>(blockIdx.x) * kTiles * kHeadTile;
  {
    const VisibleRows visible(args, t);
    BeginAfterPredecessors();
    if (visible.chunks() == 0) return;
    if (threadIdx.x == 0) shared.visible = visible;
  }
  if (threadIdx.x < kTiles * kHeadTile) (&shared.running[0][0][0])[threadIdx.x] = Running();
  __syncthreads();

  FetchedRows<kPacked> fetched;
  int index =
      shared.visible.IndexOf(args, t, TileThread(0).lane);  // of the next chunk's row `lane`
  const auto fetch = [&](int chunk) {
    const TileThread at(chunk);
    const int n = chunk * kChunk + at.lane;
    const std::byte *row, *scales;
    shared.visible.Locate(args, n, index, shared.visible.BlockOf(args, n, index), &row, &scales);
    const unsigned mask = __ballot_sync(kAllLanes, index >= 0);
    if (at.in_tile == 0) shared.mask[at.tile] = mask;
    fetched.Clear();
    fetched.Load(row, scales, mask, at.tile * kFetchRows, at.warp, at.lane,
                 shared.tiles[at.tile].stage);
    index = shared.visible.IndexOf(args, t, n + kChunk);
  };
  fetch(0);
  {
    const TileThread at(0);
    FetchedQueries queries;
    queries.Load(args, t, first_head + at.tile * kHeadTile, at.in_tile);
    queries.Store(at.in_tile, shared.queries[at.tile]);
  }
  SumPair o[8][2] = {};
  int chunk = 0;
  while (true) {
    __syncthreads();  // nobody reads the last chunk's rows and P any more
    {
      const TileThread at(chunk);
      fetched.Store(at.tile * kFetchRows, at.warp, at.lane, shared.rows,
                    shared.tiles[at.tile].stage);
    }
    __syncthreads();
    {
      const TileThread at(chunk);
      TwoFloat sums[4];
      ScoreRows<true>(shared.queries[at.tile], shared.rows, at.warp, at.lane, args.all_lanes, sums);
      StoreScores(sums, at.warp, at.lane, shared.tiles[at.tile].scores);
      WaitAtBarrier(1 + at.tile, kTileThreads);
    }
    {
      const TileThread at(chunk);
      const ChunkWeights weights =
          MakeWeights(at.in_tile, shared.mask[at.tile], args.scale, shared.tiles[at.tile].scores);
      Running running = shared.running[chunk % 2][at.tile][at.in_tile / 16];
      const float2 factors = running.Raise(weights.maximum);
      StoreParts(at.in_tile, weights, factors.y, shared.parts[at.tile]);
      const TwoFloat sum = SumOfWeights(weights);
      if (at.in_tile % 16 == 0) {
        running.Add(sum, factors);
        shared.running[(chunk + 1) % 2][at.tile][at.in_tile / 16] = running;
        shared.rescale[at.tile][at.in_tile / 16] = factors.x;
      }
      WaitAtBarrier(1 + at.tile, kTileThreads);
    }
    if (kPacked && chunk + 1 < shared.visible.chunks()) fetch(chunk + 1);
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
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const TileThread at(chunk);
      SumPair sums[2][2];
      const PartFragments<false> parts(shared.parts[at.tile], at.lane);
      SumRows(parts, shared.rows, at.warp, j, at.lane, sums);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        o[2 * j + half][0].Add(sums[half][0]);
        o[2 * j + half][1].Add(sums[half][1]);
      }
      HoldBackLoads(args.all_lanes);  // one step at a time: there are no registers for more
    }
    ++chunk;
    if (chunk == shared.visible.chunks()) break;
    if (!kPacked) fetch(chunk);
  }
  __syncthreads();
  const TileThread at(chunk);
  const float* rope = RopeOf(args, t);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = at.lane / 4 + 8 * i, head = first_head + at.tile * kHeadTile + row;
    if (head >= p.heads) continue;
    const Divisor divisor(shared.running[chunk % 2][at.tile][row], p.sink[head]);
    auto* to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.o) +
                                           (int64_t{t} * p.heads + head) * kKvRowElements);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int pair = PieceOf(at.warp, j / 2, j % 2) * 4 + at.lane % 4;
      to[pair] = FinishPair(o[j][i], divisor, RopePair(rope, pair));
    }
  }
}

constexpr int kSumThreads = 128;  // of combine_chunks_kernel: a pair of elements each
constexpr int kCombineBlocks = kKvRowElements / 2 / kSumThreads;  // of a head
constexpr int kCombineThreads = kSumThreads + 32;                 // one more warp adds the weights

// Block (part of the elements, head, row): adds the chunks of one head in order.
__global__ void __launch_bounds__(kCombineThreads)
    combine_chunks_kernel(const __grid_constant__ AttendArgs args) {
  constexpr int kBatch = 20;  // chunks under way: those of 128 window rows and 512 groups
  constexpr int kUnrolled = 4;
  __shared__ Divisor shared_divisor;
  const SparseAttentionParams& p = args.p;
  const int64_t t = blockIdx.z, head = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool adds_weights = threadIdx.x >= kSumThreads;
  const int chunks = VisibleRows(args, t).chunks();
  // Two neighbouring pairs of the workspace are those of a lane's two pieces.
  const int at = static_cast<int>(blockIdx.x * kSumThreads + threadIdx.x) % (kKvRowElements / 2);
  const int place = at / 2, quad = place % 4, j = place / 4 % 4, warp = place / 16;
  const int pair = PieceOf(warp, j, at % 2) * 4 + quad;
  const float sink = p.sink[head];
  const RopePair rope(RopeOf(args, t), pair);
  BeginAfterPredecessors();
  if (chunks == 0) return;
  const int64_t first = t * args.partials.chunks * p.heads + head;
  const auto* o_hi =
      reinterpret_cast<const float2*>(args.partials.o) + first * (kKvRowElements / 2) + at;
  const auto* o_low =
      reinterpret_cast<const uint32_t*>(args.partials.o_low) + first * (kKvRowElements / 2) + at;
  const int stride = p.heads * (kKvRowElements / 2);
  Running running;
  SumPair o = {};
  for (int begin = 0; begin < chunks; begin += kBatch) {
    const int batch = min(chunks - begin, kBatch);
    // Lane i knows chunk i.
    float maximum = kNoRows;
    TwoFloat weights;
    if (lane < batch) {
      const int64_t from = first + static_cast<int64_t>(begin + lane) * p.heads;
      maximum = args.partials.maximum[from];
      if (adds_weights) weights = args.partials.weights[from];
    }
    SumPair sums[kBatch] = {};
    if (!adds_weights) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        if (i >= batch) continue;
        const float2 hi = o_hi[i * stride];
        sums[i] = {{hi.x, hi.y}, o_low[i * stride]};
      }
      o_hi += kBatch * stride;
      o_low += kBatch * stride;
    }
    float top = maximum;  // of the chunks up to lane's
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const float other = __shfl_up_sync(kAllLanes, top, offset);
      if (lane >= offset) top = fmaxf(top, other);
    }
    const float above = __shfl_up_sync(kAllLanes, top, 1);
    Running before;  // as lane's chunk finds it
    before.maximum = lane > 0 ? fmaxf(running.maximum, above) : running.maximum;
    const float2 factors = before.Raise(maximum);
    running.maximum = fmaxf(running.maximum, __shfl_sync(kAllLanes, top, 31));
#pragma unroll
    for (int four = 0; four < kBatch; four += kUnrolled) {
      if (four >= batch) break;
        // Chunks beyond the last are zeros.
#pragma unroll
      for (int i = four; i < four + kUnrolled; ++i) {
        const float2 factor =
            make_float2(__shfl_sync(kAllLanes, factors.x, i), __shfl_sync(kAllLanes, factors.y, i));
        if (adds_weights) {
          running.Add(TwoFloat{__shfl_sync(kAllLanes, weights.hi, i),
                               __shfl_sync(kAllLanes, weights.lo, i)},
                      factor);
        } else {
          sums[i].Scale(factor.y);
          o.Scale(factor.x);
          o.Add(sums[i]);
        }
      }
    }
  }
  if (threadIdx.x == kSumThreads) shared_divisor = Divisor(running, sink);
  __syncthreads();
  if (adds_weights) return;
  auto* to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.o) +
                                         (t * p.heads + head) * kKvRowElements);
  to[pair] = FinishPair(o, shared_divisor, rope);
}

int64_t HeadTiles(const SparseAttentionParams& p) { return (p.heads + kHeadTile - 1) / kHeadTile; }

// The most chunks that a query of this engine has.
int64_t MaxChunks(const SparseAttentionParams& p) {
  int64_t rows = kWindowTokens;
  if (p.ratio != 0) {
    const int64_t visible = VisibleGroups(p.step->max_position, p.ratio);
    rows += p.ratio == kCsaRatio ? std::min<int64_t>(visible, p.topk) : visible;
  }
  return (rows + kChunk - 1) / kChunk;
}

int64_t SplitRowBytes(const SparseAttentionParams& p) {
  return MaxChunks(p) * p.heads * (kKvRowElements * (4 + 2) + 4 + 8) + 64;
}

// The most rows of a step whose chunks are shared out.
int64_t SplitRows(const SparseAttentionParams& p, int64_t units) {
  return std::min(units / HeadTiles(p), kSplitBytes / SplitRowBytes(p));
}

int64_t WorkspaceSparseAttention(const SparseAttentionParams& p, int) {
  return std::min<int64_t>(p.step->rows, SplitRows(p, kMostSplitUnits)) * SplitRowBytes(p);
}

absl::Status SupportsSparseAttention(const SparseAttentionParams& p) {
  if (absl::Status status = SupportsSm12xRows(p); !status.ok()) return status;
  if (p.ratio != 0 && p.window.format != p.groups.format) {
    return Unsupported("window rows in format ", RowFormatName(p.window.format),
                       " with compressed rows in format ", RowFormatName(p.groups.format));
  }
  return absl::OkStatus();
}

void LaunchSparseAttention(const LaunchContext& context, const SparseAttentionParams& params) {
  cudaStream_t stream = CudaStreamOf(context);
  const KernelConfig& config = ConfigOf(context, kConfigs);
  const int64_t rows = params.step->rows, tiles = HeadTiles(params), chunks = MaxChunks(params);
  const bool packed = params.window.format == RowFormat::kPacked;
  constexpr double kLog2E = 1.4426950408889634074;
  const double scale = double{params.softmax_scale} * kLog2E;
  AttendArgs args{
      .p = params, .step = *params.step, .scale = {}, .partials = {}, .all_lanes = kAllLanes};
  args.scale.hi = static_cast<float>(scale);
  args.scale.lo = static_cast<float>(scale - args.scale.hi);
  if (rows > SplitRows(params, config.values[kSplitUnits])) {
    const dim3 grid(static_cast<unsigned>((tiles + kTiles - 1) / kTiles),
                    static_cast<unsigned>(rows));
    const auto kernel = packed ? attend_query_kernel<true> : attend_query_kernel<false>;
    LaunchOverlapped(stream, grid, kTiles * kTileThreads, sizeof(QueryShared), kernel, args);
    return;
  }
  const int64_t partials = rows * chunks * params.heads;
  args.partials.o = reinterpret_cast<float*>(context.workspace);
  args.partials.o_low = reinterpret_cast<uint16_t*>(args.partials.o + partials * kKvRowElements);
  args.partials.weights =
      reinterpret_cast<TwoFloat*>(args.partials.o_low + partials * kKvRowElements);
  args.partials.maximum = reinterpret_cast<float*>(args.partials.weights + partials);
  args.partials.chunks = chunks;
  const int64_t blocks = int64_t{config.values[kSplitBlocks]} * context.multiprocessors;
  const int64_t splits = std::min(chunks, std::max<int64_t>(1, blocks / (rows * tiles)));
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(rows));
  const auto kernel = packed ? attend_chunks_kernel<true> : attend_chunks_kernel<false>;
  LaunchOverlapped(stream, grid, kTileThreads, 0, kernel, args);
  const dim3 combine_grid(kCombineBlocks, static_cast<unsigned>(params.heads),
                          static_cast<unsigned>(rows));
  LaunchOverlapped(stream, combine_grid, kCombineThreads, 0, combine_chunks_kernel, args);
}

}  // namespace

constinit const KernelEntry kSm12xSparseAttention =
    MakeSm12xEntry<SparseAttentionParams, &LaunchSparseAttention, &SupportsSparseAttention,
                   &WorkspaceSparseAttention>("sm12x.sparse_attention", 1, {kKnobs, kConfigs});

}  // namespace dsv4
