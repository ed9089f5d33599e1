// SPDX-License-Identifier: Apache-2.0
// sparse_attention: o = softmax(q . rows * scale, with sink) . rows, then the inverse RoPE of its
// tail. Contract: kernels/op/attention.h; both pools packed or both bf16. Roofline: 584 bytes a row
// of the cache and 2048 H of a query; 4 x 512 flops a head and row, of which P . V is done three
// times. Latency at one query, tensor cores at many. Plan (attention_chunk.cuh): 16 heads of one
// query are the M of m16n8k16; its rows come in chunks of
// 32. Each has eight slices of 64 elements, and a slice of a tile of heads is one warp's: it widens
// that slice of the rows to bf16 in shared memory (exact), multiplies it by its slice of the
// queries for one segment of the scores' sums, and later by P for its slice of the output. The
// segments are added in order, in pairs of f32; in their place in shared memory comes P as three
// bf16 parts, 24 bits together. Maxima are rounded up to whole powers of two, so that rescaling is
// exact. Few queries: a block of 8 warps for each tile of heads and chunk; chunks' sums go to the
// workspace, and a second kernel adds them in order. 48 KB: rows 32, scores 16. Many: a block of 16
// warps, two tiles of heads, goes through all chunks of a query, with the same additions in the
// same order, and so the same bits. The rows of a slice are fetched by both its warps, those of the
// next chunk while this one is summed. 97 KB: rows 32, scores 32, queries 32. Accuracy: scores to
// about 2^-24 of |q| |row| / 8, exponentials to 2^-24, P . V in f32 chains of six products. Edge
// cases: -1 in the selection is a row of weight 0; heads beyond H are computed from zeros and
// dropped; padding rows are skipped.
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
constexpr int kTiles = 2;            // of a block for many queries
constexpr int64_t kSplitUnits = 64;  // most (row, head tile) pairs with a block for each chunk
constexpr int64_t kSplitBytes = int64_t{256} << 20;
constexpr int64_t kSplitBlocks = 768;

struct ChunkShared {
  SliceRows rows[kSlices];
  ChunkScores scores;
};

// Block (chunk, head tile, row): the sums of chunks blockIdx.x, + gridDim.x, ... to the workspace.
template <bool kPacked>
__global__ void __launch_bounds__(kTileThreads, 2)
    attend_chunks_kernel(const __grid_constant__ AttendArgs args) {
  __shared__ __align__(128) ChunkShared shared;
  const SparseAttentionParams& p = args.p;
  const int t = static_cast<int>(blockIdx.z);
  const int first_head = static_cast<int>(blockIdx.y) * kHeadTile;
  // What no kernel writes may be read ahead of the predecessors' end.
  const VisibleRows visible(args, t);
  BeginAfterPredecessors();
  const int slice = static_cast<int>(threadIdx.x) / 32;
  SliceRows& rows = shared.rows[slice];
  for (int chunk = static_cast<int>(blockIdx.x); chunk < visible.chunks();
       chunk += static_cast<int>(gridDim.x)) {
    const int lane = FreshLane();
    const int g = lane / 4, quad = lane % 4;
    const int n = chunk * kChunk + lane, index = visible.IndexOf(args, t, n);
    const std::byte *row, *scales;
    visible.Locate(args, n, index, visible.BlockOf(args, n, index), &row, &scales);
    const unsigned mask = __ballot_sync(kAllLanes, index >= 0);
    FetchedSlice<kPacked, kChunk> fetched;
    fetched.Load(row, scales, mask, 0, slice, lane);
    uint32_t q[4][4];
    LoadQueries(static_cast<const uint16_t*>(p.q) + int64_t{t} * p.heads * kKvRowElements,
                first_head, p.heads, slice, lane, q);
    fetched.Store(0, slice, lane, rows);
    __syncwarp();
    float sums[4][4];
    ScoreSlice(q, rows, lane, sums);
    __syncthreads();  // nobody reads the last chunk's P any more
    StoreScores(sums, slice, lane, shared.scores);
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x);
    const ChunkWeights weights = MakeWeights(thread, mask, args.scale, shared.scores);
    __syncthreads();
    const WeightFragments fragments(shared.scores, lane);
    const int64_t at = (t * args.partials.chunks + chunk) * p.heads + first_head;
    const TwoFloat sum = SumOfWeights(thread, weights);
    if (thread % 16 == 0 && first_head + thread / 16 < p.heads) {
      args.partials.maximum[at + thread / 16] = weights.maximum;
      args.partials.weights[at + thread / 16] = sum;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float out[2][4];
      SumRows(fragments, shared.scores[0], rows, j, lane, out);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (first_head + g + 8 * i >= p.heads) continue;
        float* to = args.partials.o + (at + g + 8 * i) * kKvRowElements + slice * kSlice + j * 16 +
                    2 * quad;
        *reinterpret_cast<float2*>(to) = make_float2(out[0][2 * i], out[0][2 * i + 1]);
        *reinterpret_cast<float2*>(to + 8) = make_float2(out[1][2 * i], out[1][2 * i + 1]);
      }
    }
    __syncwarp();  // before the slice is overwritten
  }
}

struct QueryShared {
  SliceRows rows[kSlices];
  ChunkScores scores[kTiles];
  uint4 queries[kTiles][kSlices][4][32];  // fragments, a K = 16 step a lane
  // What all chunks so far come to, before an even and before an odd chunk.
  Running running[2][kTiles][kHeadTile];
};

// Block (pair of head tiles, row): the output of one query.
template <bool kPacked>
__global__ void __launch_bounds__(kTiles* kTileThreads, 1)
    attend_query_kernel(const __grid_constant__ AttendArgs args) {
  constexpr int kFetchRows = kChunk / kTiles;
  extern __shared__ __align__(128) unsigned char dynamic_memory[];
  QueryShared& shared = *reinterpret_cast<QueryShared*>(dynamic_memory);
  const SparseAttentionParams& p = args.p;
  const int t = static_cast<int>(blockIdx.y);
  const VisibleRows visible(args, t);
  BeginAfterPredecessors();
  const int chunks = visible.chunks();
  if (chunks == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int slice = warp % kSlices, tile = warp / kSlices;
  const int first_head = (static_cast<int>(blockIdx.x) * kTiles + tile) * kHeadTile;
  SliceRows& rows = shared.rows[slice];
  ChunkScores& scores = shared.scores[tile];

  // Rows come in a pipeline of four stages: index, block and data, each loaded while the chunk
  // before it is summed, then the sums.
  FetchedSlice<kPacked, kFetchRows> fetched;
  int index, block, later_index;  // of the next chunk's row `lane`; of the one behind it
  const auto fetch = [&](int chunk, int lane) {  // the data of a chunk; ready the two behind it
    const int n = chunk * kChunk + lane;
    const std::byte *row, *scales;
    visible.Locate(args, n, index, block, &row, &scales);
    const unsigned mask = __ballot_sync(kAllLanes, index >= 0);
    fetched.Load(row, scales, mask, tile * kFetchRows, slice, lane);
    index = later_index;
    block = visible.BlockOf(args, n + kChunk, index);
    later_index = visible.IndexOf(args, t, n + 2 * kChunk);
    return mask;
  };
  unsigned next_mask;
  {
    const int lane = FreshLane();
    index = visible.IndexOf(args, t, lane);
    later_index = visible.IndexOf(args, t, lane + kChunk);
    block = visible.BlockOf(args, lane, index);
    next_mask = fetch(0, lane);
  }
  {
    const int lane = FreshLane();
    uint32_t q[4][4];
    LoadQueries(static_cast<const uint16_t*>(p.q) + int64_t{t} * p.heads * kKvRowElements,
                first_head, p.heads, slice, lane, q);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      shared.queries[tile][slice][step][lane] =
          make_uint4(q[step][0], q[step][1], q[step][2], q[step][3]);
    }
  }
  if (threadIdx.x < kTiles * kHeadTile) (&shared.running[0][0][0])[threadIdx.x] = Running();
  float o[8][4] = {};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int lane = FreshLane();
    const unsigned mask = next_mask;
    __syncthreads();  // nobody reads the last chunk's rows and P any more
    fetched.Store(tile * kFetchRows, slice, lane, rows);
    __syncthreads();
    {
      uint32_t q[4][4];
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        const uint4 v = shared.queries[tile][slice][step][lane];
        q[step][0] = v.x, q[step][1] = v.y, q[step][2] = v.z, q[step][3] = v.w;
      }
      float sums[4][4];
      ScoreSlice(q, rows, lane, sums);
      StoreScores(sums, slice, lane, scores);
    }
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x) % kTileThreads;
    const ChunkWeights weights = MakeWeights(thread, mask, args.scale, scores);
    if (chunk + 1 < chunks) next_mask = fetch(chunk + 1, lane);
    __syncthreads();
    const TwoFloat sum = SumOfWeights(thread, weights);
    if (thread % 16 == 0) {
      Running running = shared.running[chunk % 2][tile][thread / 16];
      running.Add(sum, running.Raise(weights.maximum));
      shared.running[(chunk + 1) % 2][tile][thread / 16] = running;
    }
    const WeightFragments fragments(scores, lane);
    float2 factors[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Running running = shared.running[chunk % 2][tile][lane / 4 + 8 * i];
      factors[i] = running.Raise(fragments.maximum[i]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      float out[2][4];
      SumRows(fragments, scores[0], rows, j, FreshLane(), out);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          o[2 * j + n][i] = Folded(o[2 * j + n][i], out[n][i], factors[i / 2]);
        }
      }
      __syncwarp();  // one step at a time: more under way take registers that are not there
    }
  }
  __syncthreads();
  const int lane = FreshLane();
  const float* rope = RopeOf(args, t);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = lane / 4 + 8 * i, head = first_head + row;
    if (head >= p.heads) continue;
    const Divisor divisor(shared.running[chunks % 2][tile][row], p.sink[head]);
    auto* to = reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(p.o) +
                                           (int64_t{t} * p.heads + head) * kKvRowElements);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int pair = slice * (kSlice / 2) + j * 4 + lane % 4;
      to[pair] = FinishPair(o[j][2 * i], o[j][2 * i + 1], pair, divisor, rope);
    }
  }
}

constexpr int kCombineThreads = kKvRowElements / 4;

// Block (head, row): adds the chunks of one head in order.
__global__ void __launch_bounds__(kCombineThreads)
    combine_chunks_kernel(const __grid_constant__ AttendArgs args) {
  constexpr int kBatch = 20;  // chunks under way: those of 128 window rows and 512 groups
  __shared__ float maxima[kBatch];
  __shared__ TwoFloat weights[kBatch];
  __shared__ float2 factors[kBatch];
  const SparseAttentionParams& p = args.p;
  const int64_t t = blockIdx.y, head = blockIdx.x;
  const int chunks = VisibleRows(args, t).chunks();
  const float sink = p.sink[head];
  BeginAfterPredecessors();
  if (chunks == 0) return;
  const int64_t first = t * args.partials.chunks * p.heads + head;
  const auto* sums = reinterpret_cast<const float4*>(args.partials.o) + threadIdx.x;
  Running running;
  float4 o = make_float4(0, 0, 0, 0);
  for (int begin = 0; begin < chunks; begin += kBatch) {
    const int batch = min(chunks - begin, kBatch);
    float4 out[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i < batch) {
        out[i] = sums[(first + static_cast<int64_t>(begin + i) * p.heads) * (kKvRowElements / 4)];
      }
    }
    if (threadIdx.x < batch) {
      const int64_t at = first + static_cast<int64_t>(begin + threadIdx.x) * p.heads;
      maxima[threadIdx.x] = args.partials.maximum[at];
      weights[threadIdx.x] = args.partials.weights[at];
    }
    __syncthreads();
    if (threadIdx.x < batch) {
      Running before = running;  // as this chunk finds it
      for (int i = 0; i < threadIdx.x; ++i) before.maximum = fmaxf(before.maximum, maxima[i]);
      factors[threadIdx.x] = before.Raise(maxima[threadIdx.x]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i >= batch) continue;
      const float2 factor = factors[i];
      running.maximum = fmaxf(running.maximum, maxima[i]);
      running.Add(weights[i], factor);
      o = make_float4(Folded(o.x, out[i].x, factor), Folded(o.y, out[i].y, factor),
                      Folded(o.z, out[i].z, factor), Folded(o.w, out[i].w, factor));
    }
    __syncthreads();
  }
  const Divisor divisor(running, sink);
  const float* rope = RopeOf(args, t);
  const int pair = static_cast<int>(threadIdx.x) * 2;
  auto* to =
      reinterpret_cast<uint2*>(static_cast<uint16_t*>(p.o) + (t * p.heads + head) * kKvRowElements);
  to[threadIdx.x] = make_uint2(FinishPair(o.x, o.y, pair, divisor, rope),
                               FinishPair(o.z, o.w, pair + 1, divisor, rope));
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
  return MaxChunks(p) * p.heads * (kKvRowElements * 4 + 4 + 8) + 64;
}

// The most rows of a step that get a block for each chunk.
int64_t SplitRows(const SparseAttentionParams& p) {
  return std::min(kSplitUnits / HeadTiles(p), kSplitBytes / SplitRowBytes(p));
}

int64_t WorkspaceSparseAttention(const SparseAttentionParams& p, int) {
  return std::min<int64_t>(p.step->rows, SplitRows(p)) * SplitRowBytes(p);
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
  const int64_t rows = params.step->rows, tiles = HeadTiles(params), chunks = MaxChunks(params);
  const bool packed = params.window.format == RowFormat::kPacked;
  constexpr double kLog2E = 1.4426950408889634074;
  const double scale = double{params.softmax_scale} * kLog2E;
  AttendArgs args{.p = params, .step = *params.step, .scale = {}, .partials = {}};
  args.scale.hi = static_cast<float>(scale);
  args.scale.lo = static_cast<float>(scale - args.scale.hi);
  if (rows > SplitRows(params)) {
    const dim3 grid(static_cast<unsigned>((tiles + kTiles - 1) / kTiles),
                    static_cast<unsigned>(rows));
    const auto kernel = packed ? attend_query_kernel<true> : attend_query_kernel<false>;
    LaunchOverlapped(stream, grid, kTiles * kTileThreads, sizeof(QueryShared), kernel, args);
    return;
  }
  const int64_t partials = rows * chunks * params.heads;
  args.partials.o = reinterpret_cast<float*>(context.workspace);
  args.partials.weights = reinterpret_cast<TwoFloat*>(args.partials.o + partials * kKvRowElements);
  args.partials.maximum = reinterpret_cast<float*>(args.partials.weights + partials);
  args.partials.chunks = chunks;
  const int64_t splits = std::min(chunks, std::max<int64_t>(1, kSplitBlocks / (rows * tiles)));
  const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(tiles),
                  static_cast<unsigned>(rows));
  const auto kernel = packed ? attend_chunks_kernel<true> : attend_chunks_kernel<false>;
  LaunchOverlapped(stream, grid, kTileThreads, 0, kernel, args);
  const dim3 combine_grid(static_cast<unsigned>(params.heads), static_cast<unsigned>(rows));
  LaunchOverlapped(stream, combine_grid, kCombineThreads, 0, combine_chunks_kernel, args);
}

}  // namespace

constinit const KernelEntry kSm12xSparseAttention =
    MakeSm12xEntry<SparseAttentionParams, &LaunchSparseAttention, &SupportsSparseAttention,
                   &WorkspaceSparseAttention>("sm12x.sparse_attention", 1);

}  // namespace dsv4
