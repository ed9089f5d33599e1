// SPDX-License-Identifier: Apache-2.0
// pack_weight: reorders rows of a stored weight into MMA fragments.
// Contract: kernels/op/pack_weight.h; layout: packed_layout.h.
// Roofline: each byte is read and written once. The rows come over PCIe, which is many times
//   slower.
// Plan: each thread gathers one vector of 16 bytes. Of a block format, it has a block
//   (block_layout.h): it copies fields, and rearranges codes word by word.
// Edge cases: rows past n, up to a multiple of 16, become zeros.
#include "kernels/op/pack_weight.h"

#include "kernels/sm12x/arch/e2m1_words.cuh"
#include "kernels/sm12x/block_layout.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/packed_layout.h"

namespace dsv4 {
namespace sm12x::pack_weight {

constexpr int kThreads = 256;

constexpr int SliceBytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFp8:
    case WeightFormat::kFp8F32:
      return sm12x::kFp8SliceBytes;
    case WeightFormat::kFp4:
    case WeightFormat::kNvfp4:
      return sm12x::kFp4SliceBytes;
    case WeightFormat::kBf16:
      return sm12x::kBf16SliceBytes;
    case WeightFormat::kBlocks:
      break;
  }
  return 0;
}

// Loads eight elements of a row, of 4, 8 or 16 bits each, from element `k` on; zeros past the last
// row.
template <class Vector>
__device__ Vector LoadEight(const PackWeightParams& p, int64_t row, int64_t k) {
  constexpr int kBits = sizeof(Vector);
  if (row >= p.rows) return Vector{};
  return *reinterpret_cast<const Vector*>(p.src_data + (row * p.k + k) * kBits / 8);
}

__global__ void __launch_bounds__(kThreads)
    pack_weight_kernel(const __grid_constant__ PackWeightParams p, int64_t vectors) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= vectors) return;
  const int lane = static_cast<int>(index % 32), g = lane / 4, t = lane % 4;
  const int slice_vectors = SliceBytes(p.format) / 512;
  const int v = static_cast<int>(index / 32 % slice_vectors);
  const int64_t slices = p.k / sm12x::kKSlice, slice = index / 32 / slice_vectors;
  const int64_t row = slice / slices * sm12x::kTileRows + g;
  const int64_t k = slice % slices * sm12x::kKSlice + 8 * t;
  uint4 out;
  switch (p.format) {
    case WeightFormat::kFp8:
    case WeightFormat::kFp8F32: {
      const uint2 low = LoadEight<uint2>(p, row, k + 32 * v);
      const uint2 high = LoadEight<uint2>(p, row + 8, k + 32 * v);
      out = {low.x, high.x, low.y, high.y};
      break;
    }
    case WeightFormat::kFp4:
    case WeightFormat::kNvfp4: {
      const int64_t step = k + 64 * v;
      const uint32_t g0 = LoadEight<uint32_t>(p, row, step);
      const uint32_t g8 = LoadEight<uint32_t>(p, row + 8, step);
      const uint32_t next_g0 = LoadEight<uint32_t>(p, row, step + 32);
      const uint32_t next_g8 = LoadEight<uint32_t>(p, row + 8, step + 32);
      out = {sm12x::PackE2M1(g0, g8), sm12x::PackE2M1(g0 >> 16, g8 >> 16),
             sm12x::PackE2M1(next_g0, next_g8), sm12x::PackE2M1(next_g0 >> 16, next_g8 >> 16)};
      break;
    }
    case WeightFormat::kBf16: {
      const uint4 low = LoadEight<uint4>(p, row, k + 32 * (v / 2));
      const uint4 high = LoadEight<uint4>(p, row + 8, k + 32 * (v / 2));
      out = v % 2 == 0 ? uint4{low.x, high.x, low.y, high.y} : uint4{low.z, high.z, low.w, high.w};
      break;
    }
    default:
      return;
  }
  const int64_t first_slice = p.row_begin / sm12x::kTileRows * slices;
  uint4* to = reinterpret_cast<uint4*>(p.dst_data + first_slice * SliceBytes(p.format));
  to[index] = out;
}

// fp8: copies the scales. fp4: makes a word of four bytes for each row of each K slice of a tile.
// nvfp4: makes two such words, of every other scale.
__global__ void __launch_bounds__(kThreads)
    pack_scales_kernel(const __grid_constant__ PackWeightParams p, int64_t count) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= count) return;
  const int64_t slices = p.k / sm12x::kKSlice;
  const int64_t first_block = p.row_begin / kFp8Block * slices;
  if (p.format == WeightFormat::kFp8) {
    p.dst_scale[first_block + index] = p.src_scale[index];
    return;
  }
  if (p.format == WeightFormat::kFp8F32) {
    reinterpret_cast<float*>(p.dst_scale)[first_block + index] =
        reinterpret_cast<const float*>(p.src_scale)[index];
    return;
  }
  const int words = p.format == WeightFormat::kNvfp4 ? 2 : 1;  // of a row and K slice
  const int64_t place = index % sm12x::kTileRows, word = index / sm12x::kTileRows % words;
  const int64_t of_tile = index / sm12x::kTileRows / words;
  const int64_t row = of_tile / slices * sm12x::kTileRows + place % 2 * 8 + place / 2;
  const uint8_t* from = p.src_scale + (row * slices + of_tile % slices) * words * 4 + word;
  uint32_t scales = words == 1 ? 0x7f7f7f7fu : 0x38383838u;  // four scales of 1
  if (row < p.rows) {
    scales = from[0] | uint32_t{from[words]} << 8 | uint32_t{from[2 * words]} << 16 |
             uint32_t{from[3 * words]} << 24;
  }
  reinterpret_cast<uint32_t*>(p.dst_scale)[p.row_begin * slices * words + index] = scales;
}

// The bits of element `i` of a block that its codes' plane, and the plane of further bits, have.
struct CodeBits {
  uint32_t low, high;
};
template <BlockType kType>
__device__ __forceinline__ CodeBits CodeOf(const uint8_t* b, int i) {
  // Two nibbles of each byte from `at` on: of elements j and j + half.
  const auto nibble = [&](int at, int element, int half) {
    return uint32_t{b[at + element % half]} >> (element / half * 4) & 15;
  };
  const auto two_bits = [&](int at) {  // of 128 elements in 32 bytes
    return uint32_t{b[at + i / 128 * 32 + i % 32]} >> (i % 128 / 32 * 2) & 3;
  };
  const int j = i % 32;
  switch (kType) {
    case BlockType::kQ4_0:
    case BlockType::kIq4Nl:
      return {nibble(2, i, 16), 0};
    case BlockType::kQ4_1:
      return {nibble(4, i, 16), 0};
    case BlockType::kQ5_0:
      return {nibble(6, i, 16), uint32_t{b[2 + i / 8]} >> (i % 8) & 1};
    case BlockType::kQ5_1:
      return {nibble(8, i, 16), uint32_t{b[4 + i / 8]} >> (i % 8) & 1};
    case BlockType::kQ2K:
      return {two_bits(16), 0};
    case BlockType::kQ3K:
      return {two_bits(32), uint32_t{b[j]} >> (i / 32) & 1};
    case BlockType::kQ4K:
      return {nibble(16 + i / 64 * 32, i % 64, 32), 0};
    case BlockType::kQ5K:
      return {nibble(48 + i / 64 * 32, i % 64, 32), uint32_t{b[16 + j]} >> (i / 32) & 1};
    case BlockType::kQ6K:
      return {uint32_t{b[i / 128 * 64 + i % 64]} >> (i % 128 / 64 * 4) & 15,
              uint32_t{b[128 + i / 128 * 32 + j]} >> (i % 128 / 32 * 2) & 3};
    case BlockType::kIq4Xs:
      return {nibble(8 + i / 32 * 16, j, 16), 0};
    case BlockType::kMxfp4:
      return {nibble(1, i, 16), 0};
    case BlockType::kNvfp4:
      return {nibble(4 + i / 16 * 8, i % 16, 8), 0};
    default:
      return {};
  }
}

template <BlockType kType, int kPlane>
__device__ __forceinline__ void PackPlane(const PackWeightParams& p, const uint8_t* block,
                                          int64_t index, uint8_t* plane) {
  using sm12x::PlaneKind;
  constexpr sm12x::Plane kOf = sm12x::PlaneOf(kType, kPlane);
  constexpr int kElements = sm12x::LayoutOf(kType).elements, kBytes = kOf.bytes;
  if constexpr (kBytes > 0) {
    uint8_t* const to = plane + index * kBytes;
    if constexpr (kOf.kind == PlaneKind::kBytes) {
      for (int i = 0; i < kBytes; ++i) to[i] = block[kOf.offset + i];
    } else {
      constexpr int kBits = kOf.kind == PlaneKind::kBits1   ? 1
                            : kOf.kind == PlaneKind::kBits2 ? 2
                                                            : 4;
      constexpr int kInWord = 32 / kBits;
      for (int first = 0; first < kElements; first += kInWord) {
        uint32_t word = 0;
#pragma unroll 8
        for (int i = 0; i < kInWord; ++i) {
          const CodeBits code = CodeOf<kType>(block, first + i);
          const int at = kOf.kind == PlaneKind::kTable ? 4 * i : i % 4 * 8 + i / 4 * kBits;
          word |= (kPlane == 0 ? code.low : code.high) << at;
        }
        reinterpret_cast<uint32_t*>(to)[first / kInWord] = word;
      }
    }
    if constexpr (kPlane + 1 < sm12x::kMostPlanes) {
      plane += RoundUp(p.n * (p.k / kElements) * kBytes, int64_t{16});
      PackPlane<kType, kPlane + 1>(p, block, index, plane);
    }
  }
}

template <BlockType kType>
__global__ void __launch_bounds__(kThreads)
    pack_blocks_kernel(const __grid_constant__ PackWeightParams p, int64_t count) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= count) return;
  constexpr int kElements = sm12x::LayoutOf(kType).elements, kBytes = sm12x::LayoutOf(kType).bytes;
  PackPlane<kType, 0>(p, reinterpret_cast<const uint8_t*>(p.src_data) + index * kBytes,
                      p.row_begin * (p.k / kElements) + index,
                      reinterpret_cast<uint8_t*>(p.dst_data));
}

unsigned Blocks(int64_t threads) {
  return static_cast<unsigned>(CeilDiv(threads, int64_t{kThreads}));
}

void Launch(const LaunchContext& context, const PackWeightParams& p) {
  const cudaStream_t stream = CudaStreamOf(context);
  if (InBlocks(p.format)) {
    return sm12x::ForBlockType(BlockTypeOf(p.format), [&]<BlockType kType>(sm12x::TypeTag<kType>) {
      const int64_t count = p.rows * (p.k / sm12x::LayoutOf(kType).elements);
      sm12x::LaunchInOrder(stream, Blocks(count), kThreads, 0, pack_blocks_kernel<kType>, p, count);
    });
  }
  const int64_t slices = p.k / sm12x::kKSlice;
  const int64_t tiles = CeilDiv(p.rows, int64_t{sm12x::kTileRows});
  const int64_t vectors = tiles * slices * (SliceBytes(p.format) / 16);
  sm12x::LaunchInOrder(stream, Blocks(vectors), kThreads, 0, pack_weight_kernel, p, vectors);
  if (p.format == WeightFormat::kBf16) return;
  const int64_t count =
      p.format == WeightFormat::kFp8 || p.format == WeightFormat::kFp8F32
          ? CeilDiv(p.rows, kFp8Block) * slices
          : tiles * sm12x::kTileRows * slices * (p.format == WeightFormat::kNvfp4 ? 2 : 1);
  sm12x::LaunchInOrder(stream, Blocks(count), kThreads, 0, pack_scales_kernel, p, count);
}

}  // namespace sm12x::pack_weight
using namespace sm12x::pack_weight;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xPackWeight =
    MakeSm12xEntry<PackWeightParams, &Launch>(DSV4_SM12X_SET ".pack_weight", 1);

}  // namespace dsv4
