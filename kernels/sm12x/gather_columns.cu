// SPDX-License-Identifier: Apache-2.0
// gather_columns: whole[row] = the ranks' columns of the row, read from where the ranks have them.
// Contract: kernels/op/gather_columns.h.
// Roofline: each rank reads the other ranks' columns over the link between the devices.
// Plan: a thread has four loads of 16 bytes under way. Where ranks have to meet, block 0 raises this
//   rank's number on every device, and each block waits for the others' numbers on its own device,
//   so that no wait reads over the link.
// Edge cases: any widths; a rank that is missing ends the wait at its limit, and all later ones.
#include "kernels/op/gather_columns.h"

#include <algorithm>

#include "kernels/sm12x/arch/signals.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4 {
namespace {

using namespace sm12x;

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // of a thread at a time
constexpr int64_t kBlocksPerMultiprocessor = 2;
constexpr int64_t kLookNs = 20'000;  // between two looks for what fails

// Waits for `peer`'s exchange `number`, unless an exchange has failed. What fails is looked for
// seldom: the words that say so may be far, and looking takes time.
__device__ __forceinline__ void WaitFor(const GatherColumnsParams& p, int peer, uint32_t number) {
  ExchangeSignals* const own = p.signals[p.rank];
  const int64_t begin = NowNs();
  // Numbers wrap around.
  for (int64_t looked = begin;
       static_cast<int32_t>(LoadAcquireSystem(&own->arrived[peer]) - number) < 0;) {
    const int64_t now = NowNs();
    if (now - looked < kLookNs) continue;
    looked = now;
    if (LoadAcquireSystem(&own->failed) != 0) return;
    const bool late = now - begin > p.limit_ns;
    if (late) StoreReleaseSystem(&p.failure->late, static_cast<uint32_t>(peer) + 1);
    if (late || LoadAcquireSystem(&p.failure->aborted) != 0) StoreReleaseSystem(&own->failed, 1u);
  }
}

// Bytes [0, width) of each row of `from` to those of `to`.
template <class Vector>
__device__ __forceinline__ void CopyColumns(int64_t rows, int64_t width, const std::byte* from,
                                            int64_t from_stride, std::byte* to, int64_t to_stride) {
  constexpr int64_t kBytes = sizeof(Vector);
  const int64_t vectors = width / kBytes, count = rows * vectors;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t at = thread; at < count; at += threads * kVectors) {
    Vector v[kVectors];
    int64_t row[kVectors], column[kVectors];
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      const int64_t i = at + j * threads;
      row[j] = rows == 1 ? 0 : i / vectors;
      column[j] = (i - row[j] * vectors) * kBytes;
      if (i < count) {
        v[j] = *reinterpret_cast<const Vector*>(from + row[j] * from_stride + column[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kVectors; ++j) {
      if (at + j * threads >= count) break;
      *reinterpret_cast<Vector*>(to + row[j] * to_stride + column[j]) = v[j];
    }
  }
}

template <class Vector>
__global__ void __launch_bounds__(kThreads)
    gather_columns_kernel(const __grid_constant__ GatherColumnsParams p) {
  BeginAfterPredecessors();
  ExchangeSignals* const own = p.signals[p.rank];
  uint32_t number = 0;
  if (own != nullptr) {
    number = own->done + 1;  // of a kernel before this one
    const int peer = threadIdx.x;
    if (blockIdx.x == 0 && peer < p.ranks && peer != p.rank) {
      StoreReleaseSystem(&p.signals[peer]->arrived[p.rank], number);
    }
    if (peer < p.ranks && peer != p.rank) WaitFor(p, peer, number);
    __syncthreads();
  }
  const int64_t stride = p.shares.WholeStride();
  std::byte* column = p.whole;
  std::byte* tail = p.whole + p.shares.WholeWidth();
  for (int r = 0; r < p.ranks; ++r) {
    const int64_t width = p.shares.widths[r], tail_width = p.shares.tails[r];
    const int64_t slice_stride = p.shares.SliceStride(r);
    CopyColumns<Vector>(p.rows, width, p.slices[r], slice_stride, column, stride);
    CopyColumns<uint8_t>(p.rows, tail_width, p.slices[r] + width, slice_stride, tail, stride);
    column += width;
    tail += tail_width;
  }
  if (own == nullptr) return;
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(&own->finished_blocks, 1u) == gridDim.x - 1) {
    own->finished_blocks = 0;
    own->done = number;
  }
}

void Launch(const LaunchContext& context, const GatherColumnsParams& p) {
  // 16 bytes at a time, where all columns begin and end at multiples of them.
  bool aligned = (reinterpret_cast<uintptr_t>(p.whole) | p.shares.WholeStride()) % 16 == 0;
  int64_t most = 0;
  for (int r = 0; r < p.ranks; ++r) {
    const int64_t width = p.shares.widths[static_cast<size_t>(r)];
    if (width == 0) continue;
    const auto slice = reinterpret_cast<uintptr_t>(p.slices[static_cast<size_t>(r)]);
    aligned = aligned && (slice | width | p.shares.SliceStride(r)) % 16 == 0;
    most = std::max(most, p.rows * width);
  }
  const int64_t of_block = int64_t{kThreads} * (aligned ? 16 * kVectors : 1);
  const int64_t blocks = std::clamp<int64_t>((most + of_block - 1) / of_block, 1,
                                             kBlocksPerMultiprocessor * context.multiprocessors);
  LaunchOverlapped(CudaStreamOf(context), dim3(static_cast<unsigned>(blocks)), kThreads, 0,
                   aligned ? gather_columns_kernel<uint4> : gather_columns_kernel<uint8_t>, p);
}

}  // namespace

constinit const KernelEntry kSm12xGatherColumns =
    MakeSm12xEntry<GatherColumnsParams, &Launch>("sm12x.gather_columns", 1);

}  // namespace dsv4
