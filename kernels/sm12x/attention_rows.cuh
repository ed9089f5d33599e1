// SPDX-License-Identifier: Apache-2.0
// The rows of sparse_attention: which of them a query sees, how a chunk of them and a tile of
// queries lie in shared memory, and their way there. What becomes of them: attention_chunk.cuh.
#pragma once

#include "kernels/op/attention.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/threads.cuh"
#include "kernels/sm12x/row_math.cuh"

namespace dsv4::sm12x {

inline constexpr int kHeadTile = 16;
inline constexpr int kChunk = 32;  // rows
inline constexpr int kSlices = 8;  // of a row, and warps of a tile of heads
inline constexpr int kSlice = 64;  // elements
inline constexpr int kPieces = kKvRowElements / 8;

// Chunk sums in the workspace, [rows, chunks, H] of each.
struct Partials {
  float2* o;        // [256] pairs of sums in the order of fragments (PieceOf)
  float2* weights;  // a power of two's exponent, and the sum of P relative to it
  int64_t chunks;   // in a row of the step, at most
};

struct AttendArgs {
  SparseAttentionParams p;
  StepRows step;
  float scale;  // softmax_scale * log2(e) * unit
  float unit;   // of the rows' numbers in shared memory: RowNumbers
  Partials partials;
};

// The rows that a query sees, in chunks: the window by the ring of positions, slot s of it the one
// with p % 128 == s, and behind the slots that positions so far have filled, in whole chunks, the
// compressed blocks. Two queries one behind the other have the same rows in the same places but for
// one of the window and, at ratio 128, of compressed blocks. Those of a block by position, the same
// for all of its queries. None for padding. Little state: it is in shared memory while sums are in
// registers.
struct VisibleRows {
  int row;  // of the step
  int sequence;
  int position, first_position;  // of the query (in a block: its last row), of its window
  int window, count;             // slots, and with them compressed blocks

  __device__ __forceinline__ VisibleRows(const AttendArgs& args, int t) : row(t) {
    const SparseAttentionParams& p = args.p;
    position = static_cast<int>(args.step.positions[t]);
    sequence = args.step.sequence_of[t];
    if (sequence < 0) {
      sequence = first_position = window = count = 0;
      return;
    }
    const SequenceRows& rows = args.step.sequences[sequence];
    int64_t oldest = int64_t{position} + 1 - kWindowTokens;
    const int64_t begin = rows.window_begin;
    if (p.block_rows > 0) {
      oldest = rows.first_position - kWindowTokens;
      position = static_cast<int>(rows.first_position) + rows.rows - 1;
    }
    first_position = static_cast<int>(oldest > begin ? oldest : begin);
    if (p.block_rows > 0) {
      window = count = position + 1 - first_position;
      return;
    }
    window = (min(position + 1, static_cast<int>(kWindowTokens)) + kChunk - 1) / kChunk * kChunk;
    int64_t compressed_blocks = 0;
    if (p.ratio == kCsaRatio) {
      compressed_blocks = VisibleCompressedBlocks(position, kCsaRatio);
      if (compressed_blocks > p.topk) compressed_blocks = p.topk;
    } else if (p.ratio == kHcaRatio) {
      compressed_blocks = VisibleCompressedBlocks(position, kHcaRatio);
    }
    count = window + static_cast<int>(compressed_blocks);
  }
  __device__ __forceinline__ int chunks() const { return (count + kChunk - 1) / kChunk; }

  // Three steps from a row's number to its place, each with a load of its own that a pipeline can
  // wait for. Step one: the position or compressed block of row n; -1 where there is none.
  __device__ __forceinline__ int IndexOf(const AttendArgs& args, int n) const {
    if (n >= count) return -1;
    if (args.p.block_rows > 0) return first_position + n;
    if (n < window) {
      const int p = position - ((position - n) & (kWindowTokens - 1));
      return p < first_position ? -1 : p;
    }
    n -= window;
    return args.p.ratio == kCsaRatio ? args.p.selected[int64_t{row} * args.p.topk + n] : n;
  }
  // Whether what step one needs is there before the predecessors end.
  __device__ __forceinline__ bool KnownEarly(const AttendArgs& args, int n) const {
    return n < window || args.p.ratio != kCsaRatio;
  }
  // Whether an earlier step wrote the row, so that it, too, is there.
  __device__ __forceinline__ bool WrittenEarly(const AttendArgs& args, int n, int index) const {
    const int64_t first = args.step.sequences[sequence].first_position;
    return n < window ? index < first : (int64_t{index} + 1) * kHcaRatio <= first;
  }
  // Step two: its block; `index` may be -1.
  __device__ __forceinline__ int BlockOf(const AttendArgs& args, int n, int index) const {
    if (index < 0) return 0;
    const SequenceRows& rows = args.step.sequences[sequence];
    const int32_t* blocks = n < window ? rows.window_blocks : rows.compressed_kv_blocks;
    return blocks[index >> BlockShift(args, n)];
  }
  // Block i of those that selected compressed blocks lie in; 0 where there is none.
  __device__ __forceinline__ int SelectableBlock(const AttendArgs& args, int i) const {
    if (args.p.ratio != kCsaRatio || i << 6 >= (position + 1) / kCsaRatio || count == 0) return 0;
    return args.step.sequences[sequence].compressed_kv_blocks[i];
  }
  // Step three: its data, and its scales where the format has them.
  __device__ __forceinline__ void Locate(const AttendArgs& args, int n, int index, int block,
                                         const std::byte** row, const std::byte** scales) const {
    const RowPool& pool = n < window ? args.p.window : args.p.compressed;
    const int slot = index & ((1 << BlockShift(args, n)) - 1);
    *row = pool.Row(block, slot);
    *scales = pool.Scales(block, slot);
  }

 private:
  // The binary logarithm of a block's rows.
  __device__ __forceinline__ int BlockShift(const AttendArgs& args, int n) const {
    static_assert(kWindowBlockTokens == 64 && kCompressedKvBlockTokens / kCsaRatio == 64 &&
                  kCompressedKvBlockTokens / kHcaRatio == 2);
    return n < window || args.p.ratio == kCsaRatio ? 6 : 1;
  }
};

// As what kind of numbers rows, queries and P are multiplied. In bf16, P is the sum of three parts,
// which may be scaled by the power of two that a chunk's sums are to be multiplied by.
template <RowFormat kFormat>
struct RowNumbers {
  static constexpr int kParts = 3;
  static constexpr bool kScaledParts = true;
  static constexpr float kUnit = 1;
  static __device__ __forceinline__ uint32_t Pair(float a, float b) { return Bf16x2(a, b); }
  static __device__ __forceinline__ float2 Floats(uint32_t pair) {
    return make_float2(Bf16Low(pair), Bf16High(pair));
  }
  static __device__ __forceinline__ uint4 Query(const uint4& bf16) { return bf16; }
};
// Codes of e4m3 become f16 by a shift, 2^-8 of what they stand for; queries fit. Two parts of P
// leave 2^-25 of the largest.
template <>
struct RowNumbers<RowFormat::kFp8PerTensor> {
  static constexpr int kParts = 2;
  static constexpr bool kScaledParts = false;  // they would lose bits
  static constexpr float kUnit = 256 * kFp8RowScale;
  static __device__ __forceinline__ uint32_t Pair(float a, float b) { return F16x2(a, b); }
  static __device__ __forceinline__ float2 Floats(uint32_t pair) { return FloatsOfF16x2(pair); }
  static __device__ __forceinline__ uint32_t Query(uint32_t bf16) {
    return F16x2(Bf16Low(bf16), Bf16High(bf16));
  }
  static __device__ __forceinline__ uint4 Query(const uint4& bf16) {
    return make_uint4(Query(bf16.x), Query(bf16.y), Query(bf16.z), Query(bf16.w));
  }
  // Bytes 0 and 1 of `word`, or 2 and 3.
  static __device__ __forceinline__ uint32_t Widen(uint32_t word, bool upper) {
    const uint32_t codes = __byte_perm(word, 0, upper ? 0x3424 : 0x1404);
    return (codes & 0x80008000u) | (codes >> 1 & 0x3f803f80u);
  }
};

// A chunk's rows in shared memory, 16 bits an element, and a tile's queries: pieces of eight
// elements, swizzled.
using ChunkRow = uint4[kPieces];
using QueryTile = uint4[kHeadTile][kPieces];

// Where a tile finds the row of a chunk: as it is, but for the one that its query has another of,
// which lies behind the chunk, swizzled as the one in its place.
struct RowPlaces {
  const ChunkRow* rows;
  int replaced;  // -1: none
  __device__ __forceinline__ const uint4* operator[](int n) const {
    return rows[n == replaced ? kChunk : n];
  }
};

// What a tile's heads w and w + 8, the two that warp w makes P of, keep of a chunk: scores, a
// number from each quarter of the sums; then P as the sum of bf16 parts in fragments of two K =
// 16 steps; and room for rows of the next chunk.
inline constexpr int kMostParts = 3;
inline constexpr int kQuarters = 4;
union HeadPair {
  float scores[2][kQuarters][kChunk];
  struct {
    uint32_t parts[2 * kMostParts][4][4];
    uint4 codes[2][32];
    union {
      uint4 tail[32];         // of the last two
      uint4 replaced[2][16];  // of the others
    };
  };
};
static_assert(sizeof(HeadPair) % 128 == 0);  // one bank for all
using HeadPairs = HeadPair[kSlices];

// kRows of one slice of a chunk's rows, beginning at `first`, on their way to shared memory: in
// registers, or, kStaged, in `stage`, where a lane reads what it copied. Lane n knows row n of the
// chunk. Fewer than all rows are those that a tile fetches for others, too: then also the row
// `replaced`, unless that is -1.
template <RowFormat kFormat, int kRows, bool kStaged>
struct FetchedSlice {
  static constexpr bool kPacked = kFormat == RowFormat::kPacked;
  static constexpr bool kFp8 = kFormat == RowFormat::kFp8PerTensor;
  static constexpr int kReplaced = kRows < kChunk ? 1 : 0;
  static constexpr int kVectors = kRows / (kFp8 ? 8 : 4);
  uint4 values[kStaged ? 1 : kVectors + kReplaced];
  uint32_t scale;  // packed: of row `lane`, its ue8m0 code

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (uint4& value : values) value = make_uint4(0, 0, 0, 0);
    scale = 0;
  }

  // The rows in `mask`; leaves the others as they are, or, kStaged, zeros.
  __device__ __forceinline__ void Load(const std::byte* row, const std::byte* scales, unsigned mask,
                                       int first, int replaced, int slice, int lane,
                                       HeadPair* stage = nullptr) {
    // The 16 bytes of row n at `offset` where `wanted`.
    const auto load = [&](int n, int offset, uint4& to, bool wanted) {
      const auto* from = reinterpret_cast<const std::byte*>(
          __shfl_sync(kAllLanes, reinterpret_cast<uint64_t>(row), n));
      const bool present = (mask >> n & 1) != 0;
      if constexpr (kStaged) {
        if (wanted && present) CopyAsync16(&to, from + offset);
        if (wanted && !present) to = make_uint4(0, 0, 0, 0);
      } else if (wanted && present) {
        to = *reinterpret_cast<const uint4*>(from + offset);
      }
    };
    if (HasCodes(slice)) {
      // 64 codes of e4m3: 16 a lane, eight rows at a time.
      const int offset = slice * kSlice + lane % 4 * 16;
      if (kPacked && (mask >> lane & 1) != 0) scale = static_cast<uint32_t>(scales[slice]);
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i) {
        load(first + i * 8 + lane / 4, offset, Place(i, slice, lane, stage), true);
      }
      if (kReplaced != 0 && replaced >= 0) {
        load(replaced, offset, Replaced(slice, lane, stage), lane < 4);
      }
    } else {
      // 64 bf16: 8 a lane, four rows at a time.
      const int offset =
          (kPacked ? kKvRowElements - kKvRopeElements : slice * kSlice * 2) + lane % 8 * 16;
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) {
        load(first + i * 4 + lane / 8, offset, Place(i, slice, lane, stage), true);
      }
      if (kReplaced != 0 && replaced >= 0) {
        load(replaced, offset, Replaced(slice, lane, stage), lane < 8);
      }
    }
    if constexpr (kStaged) CommitCopies();
  }

  __device__ __forceinline__ void Store(int first, int replaced, int slice, int lane, ChunkRow* out,
                                        HeadPair* stage = nullptr) {
    if constexpr (kStaged) WaitForCopies<0>();
    if constexpr (kFp8) {
      const auto store = [&](const uint4& v, int n, int to) {
        // So is every code of a broken row.
        const bool broken = (v.x & 0x7f) == 0x7f;
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
        uint32_t wide[8];
#pragma unroll
        for (int w = 0; w < 8; ++w) {
          wide[w] = broken ? 0x7fff7fffu : RowNumbers<kFormat>::Widen(words[w / 2], w % 2 != 0);
        }
        const int piece = slice * 8 + lane % 4 * 2;
        out[to][piece ^ (n & 7)] = make_uint4(wide[0], wide[1], wide[2], wide[3]);
        out[to][(piece + 1) ^ (n & 7)] = make_uint4(wide[4], wide[5], wide[6], wide[7]);
      };
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i) {
        const int n = first + i * 8 + lane / 4;
        store(Place(i, slice, lane, stage), n, n);
      }
      if (kReplaced != 0 && replaced >= 0 && lane < 4) {
        store(Replaced(slice, lane, stage), replaced, kChunk);
      }
    } else if (HasCodes(slice)) {
      // Sign, exponent and mantissa of a code, shifted to their places, are the value times 2^-120.
      // What makes that good and applies the scale is one bf16 factor but for large scales. A
      // broken run's scale is infinite, and so is what comes of it.
      constexpr uint32_t kLargest = 134;
      const uint32_t factors = (min(scale, kLargest) + 120) * 0x00800080u;
      const bool more = __any_sync(kAllLanes, scale > kLargest);
      const uint32_t rest =
          (scale == kBrokenScale ? 255 : max(scale, kLargest) - kLargest + 127) * 0x00800080u;
      // Row n, to the place of row `to`.
      const auto store = [&](const uint4& from, int n, int to, bool stores) {
        const uint32_t factor = __shfl_sync(kAllLanes, factors, n);
        const uint4 v = stores ? from : make_uint4(0, 0, 0, 0);
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
        uint32_t wide[8];
#pragma unroll
        for (int w = 0; w < 8; ++w) {
          const uint32_t codes = __byte_perm(words[w / 2], 0, w % 2 == 0 ? 0x1404 : 0x3424);
          const uint32_t small = (codes & 0x80008000u) | (codes >> 4 & 0x07f007f0u);
          wide[w] = MultiplyBf16x2(small, factor);
        }
        if (more) {
          const uint32_t factor2 = __shfl_sync(kAllLanes, rest, n);
#pragma unroll
          for (uint32_t& w : wide) w = MultiplyBf16x2(w, factor2);
        }
        if (!stores) return;
        const int piece = slice * 8 + lane % 4 * 2;
        out[to][piece ^ (n & 7)] = make_uint4(wide[0], wide[1], wide[2], wide[3]);
        out[to][(piece + 1) ^ (n & 7)] = make_uint4(wide[4], wide[5], wide[6], wide[7]);
      };
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i) {
        const int n = first + i * 8 + lane / 4;
        store(Place(i, slice, lane, stage), n, n, true);
      }
      if (kReplaced != 0 && replaced >= 0) {
        store(Replaced(slice, lane, stage), replaced, kChunk, lane < 4);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kRows / 4; ++i) {
        const int n = first + i * 4 + lane / 8;
        out[n][(slice * 8 + lane % 8) ^ (n & 7)] = Place(i, slice, lane, stage);
      }
      if (kReplaced != 0 && replaced >= 0 && lane < 8) {
        out[kChunk][(slice * 8 + lane) ^ (replaced & 7)] = Replaced(slice, lane, stage);
      }
    }
  }

 private:
  static __device__ __forceinline__ bool HasCodes(int slice) {
    return kFp8 || (kPacked && slice < kSlices - 1);
  }
  // The places of a lane's values.
  __device__ __forceinline__ uint4& Place(int i, int slice, int lane, HeadPair* stage) {
    if constexpr (!kStaged) return values[i];
    static_assert(!kStaged || kRows <= 16);
    return i < 2 ? stage[slice].codes[i][lane] : stage[slice - (i - 2)].tail[lane];
  }
  __device__ __forceinline__ uint4& Replaced(int slice, int lane, HeadPair* stage) {
    if constexpr (!kStaged) return values[kVectors];
    return stage[slice / 2].replaced[slice % 2][lane % 8];
  }
};

// A tile's queries on their way to shared memory, by 256 threads; zeros for heads beyond `heads`.
struct FetchedQueries {
  static constexpr int kVectors = kHeadTile * kPieces / (kSlices * 32);
  uint4 values[kVectors];

  __device__ __forceinline__ void Load(const AttendArgs& args, int64_t t, int first_head,
                                       int thread) {
    const auto* from =
        static_cast<const uint4*>(args.p.q) + (t * args.p.heads + first_head) * kPieces;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int at = thread + i * kSlices * 32;
      values[i] = first_head + at / kPieces < args.p.heads ? from[at] : make_uint4(0, 0, 0, 0);
    }
  }
  template <RowFormat kFormat>
  __device__ __forceinline__ void Store(int thread, QueryTile& out) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int at = thread + i * kSlices * 32, head = at / kPieces;
      out[head][at % kPieces ^ (head & 7)] = RowNumbers<kFormat>::Query(values[i]);
    }
  }
};

}  // namespace dsv4::sm12x
