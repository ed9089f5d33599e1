// SPDX-License-Identifier: Apache-2.0
// Cache rows and queries of sparse_attention: which rows a query sees, the layout of a chunk of
// rows and of a tile of queries in shared memory, and their loads. attention_chunk.cuh computes
// with them.
#pragma once

#include <type_traits>

#include "kernels/op/attention.h"
#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/threads.cuh"
#include "kernels/sm12x/row_math.cuh"

namespace dsv4::sm12x {

inline constexpr int kHeadTile = 16;
inline constexpr int kChunk = 32;  // rows
inline constexpr int kSlices = 8;  // of a row; also warps of a tile of heads
inline constexpr int kSlice = 64;  // elements of a slice
inline constexpr int kPieces = kKvRowElements / 8;

// Sums of chunks in the workspace.
struct Partials {
  float2* o;        // [rows, chunks, H, 256]: pairs of sums, in the order of PartialOf
  float2* weights;  // [rows, chunks, H]: m and the sum of P, both sums relative to 2^m
  int64_t chunks;   // the most of a row of the step
};

struct AttendArgs {
  SparseAttentionParams p;
  StepRows step;
  float scale;  // softmax_scale * log2(e) * unit
  float unit;   // RowNumbers::kUnit
  Partials partials;
};

// The rows that a query sees, in order:
// - Window rows as a ring: slot s has the position p with p % 128 == s (docs/adr/0017). The slots
//   filled so far are padded to whole chunks.
// - Compressed blocks.
// Two consecutive queries thus have the same rows in the same places, except for one window row
// and, at ratio 128, at most one compressed block. With block_rows, the window rows are in order of
// position and the same for all queries of a block. Padding rows of a step see none. The state is
// small because it stays in shared memory while registers hold sums.
struct VisibleRows {
  int row;  // of the step
  int sequence;
  int position;        // of the query; with block_rows, of the last query of its block
  int first_position;  // of its window
  int window;          // slots of the window
  int count;           // slots of the window, and compressed blocks

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

  // A row's address takes three steps, each with one dependent load, so that callers can overlap
  // these loads with other work.
  // Step one: the position or compressed block of row n; -1 if there is none.
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
  // Whether step one of row n reads nothing that the kernel's predecessors write.
  __device__ __forceinline__ bool KnownEarly(const AttendArgs& args, int n) const {
    return n < window || args.p.ratio != kCsaRatio;
  }
  // Whether an earlier step wrote row n, so that it can be read before the predecessors end.
  __device__ __forceinline__ bool WrittenEarly(const AttendArgs& args, int n, int index) const {
    const int64_t first = args.step.sequences[sequence].first_position;
    return n < window ? index < first : (int64_t{index} + 1) * kHcaRatio <= first;
  }
  // Step two: the KV block of the row; `index` may be -1.
  __device__ __forceinline__ int BlockOf(const AttendArgs& args, int n, int index) const {
    if (index < 0) return 0;
    const SequenceRows& rows = args.step.sequences[sequence];
    const int32_t* blocks = n < window ? rows.window_blocks : rows.compressed_kv_blocks;
    return blocks[index >> BlockShift(args, n)];
  }
  // The KV block of compressed blocks 64 i .. 64 i + 63, from which ratio 4 selects; 0 if there is
  // none.
  __device__ __forceinline__ int SelectableBlock(const AttendArgs& args, int i) const {
    if (args.p.ratio != kCsaRatio || i << 6 >= (position + 1) / kCsaRatio || count == 0) return 0;
    return args.step.sequences[sequence].compressed_kv_blocks[i];
  }
  // Step three: the row's data, and its scales where the format has them.
  __device__ __forceinline__ void Locate(const AttendArgs& args, int n, int index, int block,
                                         const std::byte** row, const std::byte** scales) const {
    const RowPool& pool = n < window ? args.p.window : args.p.compressed;
    const int slot = index & ((1 << BlockShift(args, n)) - 1);
    *row = pool.Row(block, slot);
    *scales = pool.Scales(block, slot);
  }

 private:
  // log2 of the rows of a KV block.
  __device__ __forceinline__ int BlockShift(const AttendArgs& args, int n) const {
    static_assert(kWindowBlockTokens == 64 && kCompressedKvBlockTokens / kCsaRatio == 64 &&
                  kCompressedKvBlockTokens / kHcaRatio == 2);
    return n < window || args.p.ratio == kCsaRatio ? 6 : 1;
  }
};

// The numbers in which rows, queries and P are multiplied. By default bf16.
// - kParts: P is the sum of so many numbers.
// - kScaledParts: whether parts of P may be multiplied by the power of two that rescales a chunk's
//   sums. If not, the sums themselves are multiplied.
// - kUnit: the value of a row's element over its number in shared memory.
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
// f16: a shift turns an e4m3 code into 2^-8 of its value. Queries are in f16's range. P as the sum
// of two parts has an error of at most 2^-25 of the largest weight.
template <>
struct RowNumbers<RowFormat::kFp8PerTensor> {
  static constexpr int kParts = 2;
  static constexpr bool kScaledParts = false;  // f16 has too small a range
  static constexpr float kUnit = 256 * kFp8RowScale;
  static __device__ __forceinline__ uint32_t Pair(float a, float b) { return F16x2(a, b); }
  static __device__ __forceinline__ float2 Floats(uint32_t pair) { return FloatsOfF16x2(pair); }
  static __device__ __forceinline__ uint32_t Query(uint32_t bf16) {
    return F16x2(Bf16Low(bf16), Bf16High(bf16));
  }
  static __device__ __forceinline__ uint4 Query(const uint4& bf16) {
    return make_uint4(Query(bf16.x), Query(bf16.y), Query(bf16.z), Query(bf16.w));
  }
  // The codes in bytes 0 and 1 of `word`, or in 2 and 3, as f16x2.
  static __device__ __forceinline__ uint32_t UnpackToF16(uint32_t word, bool upper) {
    const uint32_t codes = __byte_perm(word, 0, upper ? 0x3424 : 0x1404);
    return (codes & 0x80008000u) | (codes >> 1 & 0x3f803f80u);
  }
};

// A row of a chunk and a tile's queries in shared memory: 16 bits an element, in swizzled pieces of
// eight elements.
using ChunkRow = uint4[kPieces];
using QueryTile = uint4[kHeadTile][kPieces];

// The rows of a chunk as one tile sees them. The two tiles of a block share a chunk; if their
// queries differ in row `replaced`, this tile's own row lies behind the chunk, swizzled as row
// `replaced`.
struct RowPlaces {
  const ChunkRow* rows;
  int replaced;  // -1: none
  __device__ __forceinline__ const uint4* operator[](int n) const {
    return rows[n == replaced ? kChunk : n];
  }
};

// Scratch of heads w and w + 8 of a tile, whose P warp w computes, for one chunk. In turn:
// - scores: the partial sums of each quarter of the elements.
// - parts: the parts of P as fragments of two K = 16 steps. Behind them, rows of the next chunk on
//   their way.
inline constexpr int kMostParts = 3;
inline constexpr int kQuarters = 4;
union HeadPair {
  float scores[2][kQuarters][kChunk];
  struct {
    uint32_t parts[2 * kMostParts][4][4];
    uint4 codes[2][32];
    union {
      uint4 tail[32];         // in the last two pairs
      uint4 replaced[2][16];  // in the others
    };
  };
};
static_assert(sizeof(HeadPair) % 128 == 0);  // all begin at the same bank
using HeadPairs = HeadPair[kSlices];
// The same apart.
struct ScorePair {
  float scores[2][kQuarters][kChunk];
};
struct PartPair {
  uint32_t parts[2 * kMostParts][4][4];
};

// One slice of kRows rows of a chunk, from row `first` on, between global memory (Load) and its
// place in shared memory (Store).
// - stage: where the bytes wait, each lane reading what it copied itself; or in registers.
// - Lane n passes the addresses of row n of the chunk.
// - If kRows < kChunk, the tiles of a block share the rows. A tile then also loads its own row
//   `replaced` (RowPlaces), unless that is -1.
enum class RowStage { kNone, kPairs, kPlain };
template <RowFormat kFormat, int kRows, RowStage kStage>
struct FetchedSlice {
  static constexpr bool kStaged = kStage != RowStage::kNone;
  using Stage = std::conditional_t<kStage == RowStage::kPlain, uint4, HeadPair>;
  static constexpr bool kPacked = kFormat == RowFormat::kPacked;
  static constexpr bool kFp8 = kFormat == RowFormat::kFp8PerTensor;
  static constexpr int kReplaced = kRows < kChunk ? 1 : 0;
  static constexpr int kVectors = kRows / (kFp8 ? 8 : 4);
  uint4 values[kStaged ? 1 : kVectors + kReplaced];
  uint32_t scale;  // packed: the ue8m0 code of row `lane`

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (uint4& value : values) value = make_uint4(0, 0, 0, 0);
    scale = 0;
  }

  // Loads the rows in `mask`. Others keep their values, or with kStaged become zeros.
  __device__ __forceinline__ void Load(const std::byte* row, const std::byte* scales, unsigned mask,
                                       int first, int replaced, int slice, int lane,
                                       Stage* stage = nullptr) {
    // Loads 16 bytes of row n at `offset`, if `wanted`.
    const auto load = [&](int n, int offset, uint4& to, bool wanted) {
      const auto* from = reinterpret_cast<const std::byte*>(
          __shfl_sync(kAllLanes, reinterpret_cast<uint64_t>(row), n));
      const bool present = (mask >> n & 1) != 0;
      if constexpr (kStaged) {
        if (wanted && present) CopyAsync16(&to, from + offset);
        if (wanted && !present) to = make_uint4(0, 0, 0, 0);
      } else {
        LoadIf(wanted && present, from + offset, &to);
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
                                        Stage* stage = nullptr) {
    if constexpr (kStaged) WaitForCopies<0>();
    if constexpr (kFp8) {
      const auto store = [&](const uint4& v, int n, int to) {
        // In a broken row every code is NaN.
        const bool broken = (v.x & 0x7f) == 0x7f;
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
        uint32_t unpacked[8];
#pragma unroll
        for (int w = 0; w < 8; ++w) {
          unpacked[w] =
              broken ? 0x7fff7fffu : RowNumbers<kFormat>::UnpackToF16(words[w / 2], w % 2 != 0);
        }
        const int piece = slice * 8 + lane % 4 * 2;
        out[to][piece ^ (n & 7)] = make_uint4(unpacked[0], unpacked[1], unpacked[2], unpacked[3]);
        out[to][(piece + 1) ^ (n & 7)] =
            make_uint4(unpacked[4], unpacked[5], unpacked[6], unpacked[7]);
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
      // A code whose sign, exponent and mantissa are shifted to their places in bf16 has its value
      // times 2^-120. One bf16 factor corrects this and applies the scale; scales above kLargest
      // need a second factor. A broken run has an infinite scale, which makes its values infinite
      // or NaN.
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
        uint32_t unpacked[8];
#pragma unroll
        for (int w = 0; w < 8; ++w) {
          const uint32_t codes = __byte_perm(words[w / 2], 0, w % 2 == 0 ? 0x1404 : 0x3424);
          const uint32_t small = (codes & 0x80008000u) | (codes >> 4 & 0x07f007f0u);
          unpacked[w] = MultiplyBf16x2(small, factor);
        }
        if (more) {
          const uint32_t factor2 = __shfl_sync(kAllLanes, rest, n);
#pragma unroll
          for (uint32_t& w : unpacked) w = MultiplyBf16x2(w, factor2);
        }
        if (!stores) return;
        const int piece = slice * 8 + lane % 4 * 2;
        out[to][piece ^ (n & 7)] = make_uint4(unpacked[0], unpacked[1], unpacked[2], unpacked[3]);
        out[to][(piece + 1) ^ (n & 7)] =
            make_uint4(unpacked[4], unpacked[5], unpacked[6], unpacked[7]);
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
  // Where a lane keeps its values.
  __device__ __forceinline__ uint4& Place(int i, int slice, int lane, Stage* stage) {
    if constexpr (!kStaged) {
      return values[i];
    } else if constexpr (kStage == RowStage::kPlain) {
      return stage[(slice * (kRows / 8) + i) * 32 + lane];
    } else {
      static_assert(kRows <= 16);
      return i < 2 ? stage[slice].codes[i][lane] : stage[slice - (i - 2)].tail[lane];
    }
  }
  __device__ __forceinline__ uint4& Replaced(int slice, int lane, Stage* stage) {
    if constexpr (kStage == RowStage::kPairs) {
      return stage[slice / 2].replaced[slice % 2][lane % 8];
    } else {
      return values[kReplaced != 0 ? kVectors : 0];
    }
  }
};

// A tile's queries between global and shared memory, in registers of 256 threads. Heads past the
// last are zeros.
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
