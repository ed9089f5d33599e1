// SPDX-License-Identifier: Apache-2.0
// gather_columns: whole[row] = the columns of all ranks.
//
// Contract: kernels/op/gather_columns.h.
//
// Roofline: each rank reads the other ranks' columns over the link between the devices. Short
// slices take the latency of the link.
//
// Plan:
// - Short slices: each rank writes its packets to all others' inboxes and waits for theirs in its
//   own, so that data crosses the link once, or in host memory twice. The number of the exchange in
//   each word tells that it is complete, so no fence is needed, and nothing is cleared.
// - Long slices: a thread has four loads of 16 bytes in flight. If ranks must wait for each other,
//   block 0 raises this rank's number on every device, and each block polls the others' numbers on
//   its own device, so that no poll crosses the link.
//
// Edge cases: any widths; a missing rank ends the wait at its limit, and later exchanges do not
// wait.
#include "kernels/op/gather_columns.h"

#include <algorithm>

#include "kernels/sm12x/arch/signals.cuh"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"

namespace dsv4 {
namespace sm12x::gather_columns {

using namespace sm12x;

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // in flight, of a thread
constexpr int64_t kBlocksPerMultiprocessor = 2;
constexpr uint32_t kPollsPerCheck = 1024;  // about half a millisecond

// A wait for `peer` that ends when an exchange fails. It checks the time and the failure flags only
// every kPollsPerCheck polls: thousands of threads wait, and the flags are in host memory.
class Wait {
 public:
  __device__ __forceinline__ Wait(const GatherColumnsParams& p, int peer) : p_(p), peer_(peer) {}

  __device__ __forceinline__ bool Continues() {
    if (++polls_ % kPollsPerCheck != 0) return true;
    ExchangeSignals* const own = p_.signals[p_.rank];
    if (LoadAcquireSystem(&own->failed) != 0) return false;
    const int64_t now = NowNs();
    if (begin_ == 0) begin_ = now;
    const bool late = now - begin_ > p_.limit_ns;
    if (late) StoreReleaseSystem(&p_.failure->late, static_cast<uint32_t>(peer_) + 1);
    if (late || LoadAcquireSystem(&p_.failure->aborted) != 0) StoreReleaseSystem(&own->failed, 1u);
    return true;
  }

 private:
  const GatherColumnsParams& p_;
  const int peer_;
  int64_t begin_ = 0;
  uint32_t polls_ = 0;
};

// The number of this launch's exchange.
__device__ __forceinline__ uint32_t ExchangeNumber(const ExchangeSignals* own) {
  return own->done + 1;  // an earlier kernel wrote `done`
}

// Called at the end of every block.
__device__ __forceinline__ void EndExchange(ExchangeSignals* own, uint32_t number) {
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(&own->done_blocks, 1u) == gridDim.x - 1) {
    own->done_blocks = 0;
    own->done = number;
  }
}

// Short slices.

// The packets of a rank. A rank with an empty slice sends one, because the others wait for it.
__host__ __device__ inline int64_t Packets(const GatherColumnsParams& p, int rank) {
  const int64_t packets = p.rows * p.shares.SliceStride(rank) / 8;
  return packets == 0 ? 1 : packets;
}

// The place of a rank's slice in the whole tensor.
struct SlicePlace {
  __device__ __forceinline__ SlicePlace(const GatherColumnsParams& p, int rank)
      : width(p.shares.widths[rank]),
        tail_width(p.shares.tails[rank]),
        slice_stride(p.shares.SliceStride(rank)),
        stride(p.shares.WholeStride()),
        column(p.whole),
        tail(p.whole + p.shares.WholeWidth()) {
    for (int r = 0; r < rank; ++r) {
      column += p.shares.widths[r];
      tail += p.shares.tails[r];
    }
  }

  // Stores bytes [8 packet, 8 packet + 8) of the slice. kWords: columns begin and end at multiples
  // of 8.
  template <bool kWords>
  __device__ __forceinline__ void Put(int64_t packet, uint64_t bytes) const {
    if (slice_stride == 0) return;
    const auto begin = static_cast<uint32_t>(packet * 8);  // below kMostPushedBytes
    const int64_t row = begin / static_cast<uint32_t>(slice_stride);
    const int64_t at = begin - row * slice_stride;
    if (kWords && at + 8 <= width) {
      *reinterpret_cast<uint64_t*>(column + row * stride + at) = bytes;
      return;
    }
    for (int64_t i = at; i < at + 8; ++i, bytes >>= 8) {
      const auto byte = static_cast<std::byte>(bytes & 0xff);
      if (i < width) {
        column[row * stride + i] = byte;
      } else if (i < width + tail_width) {
        tail[row * stride + i - width] = byte;
      }
    }
  }

  int64_t width, tail_width, slice_stride, stride;
  std::byte *column, *tail;
};

template <bool kWords>
__global__ void __launch_bounds__(kThreads)
    push_columns_kernel(const __grid_constant__ GatherColumnsParams p) {
  BeginAfterPredecessors();
  ExchangeSignals* const own = p.signals[p.rank];
  const uint32_t number = ExchangeNumber(own);
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;

  const uint64_t flag = uint64_t{number} << 32;
  const SlicePlace own_place(p, p.rank);
  const bool empty = p.shares.SliceStride(p.rank) == 0;
  const auto* slice = reinterpret_cast<const uint64_t*>(p.slices[p.rank]);
  for (int64_t at = thread; at < Packets(p, p.rank); at += threads) {
    const uint64_t bytes = empty ? 0 : slice[at];
    const uint64_t low = flag | (bytes & 0xffffffff), high = flag | bytes >> 32;
    for (int i = 1; i < p.ranks; ++i) {
      const int peer = (p.rank + i) % p.ranks;
      StorePacketSystem(p.inboxes[peer]->packets[number % 2][p.rank][at], low, high);
    }
    own_place.Put<kWords>(at, bytes);
  }

  // All peers' packets are one sequence, so that no thread waits for one peer after the other.
  for (int64_t item = thread;; item += threads) {
    int64_t at = item;
    int peer = p.rank == 0 ? 1 : 0;
    while (peer < p.ranks && at >= Packets(p, peer)) {
      at -= Packets(p, peer);
      peer += peer + 1 == p.rank ? 2 : 1;
    }
    if (peer >= p.ranks) break;
    // The peer writes here again only after it has received this rank's next packets.
    const uint64_t* const packet = p.inboxes[p.rank]->packets[number % 2][peer][at];
    uint64_t low, high;
    LoadPacketSystem(packet, low, high);
    for (Wait wait(p, peer); (low >> 32 != number || high >> 32 != number) && wait.Continues();) {
      LoadPacketSystem(packet, low, high);
    }
    SlicePlace(p, peer).Put<kWords>(at, (low & 0xffffffff) | high << 32);
  }
  EndExchange(own, number);
}

// Long slices.

// Copies bytes [0, width) of each row.
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
    number = ExchangeNumber(own);
    const int peer = threadIdx.x;
    if (peer < p.ranks && peer != p.rank) {
      if (blockIdx.x == 0) StoreReleaseSystem(&p.signals[peer]->arrived[p.rank], number);
      // The difference is signed because numbers wrap around.
      for (Wait wait(p, peer);
           static_cast<int32_t>(LoadAcquireSystem(&own->arrived[peer]) - number) < 0 &&
           wait.Continues();) {
      }
    }
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
  if (own != nullptr) EndExchange(own, number);
}

// Blocks for `threads` threads; at most as many as are resident at once, because they wait.
dim3 BlocksFor(const LaunchContext& context, int64_t threads) {
  const int64_t blocks = std::clamp<int64_t>((threads + kThreads - 1) / kThreads, 1,
                                             kBlocksPerMultiprocessor * context.multiprocessors);
  return {static_cast<unsigned>(blocks)};
}

void Launch(const LaunchContext& context, const GatherColumnsParams& p) {
  // Bitwise OR of all addresses and widths: shows their common alignment.
  uintptr_t places = reinterpret_cast<uintptr_t>(p.whole) | p.shares.WholeStride();
  uintptr_t slices = 0;
  int64_t most = 0, packets = 0;
  for (int r = 0; r < p.ranks; ++r) {
    const int64_t width = p.shares.widths[static_cast<size_t>(r)];
    packets += r == p.rank ? 0 : Packets(p, r);
    if (width == 0) continue;
    places |= static_cast<uintptr_t>(width);
    slices |=
        reinterpret_cast<uintptr_t>(p.slices[static_cast<size_t>(r)]) | p.shares.SliceStride(r);
    most = std::max(most, p.rows * width);
  }
  const cudaStream_t stream = CudaStreamOf(context);
  if (PushesColumns(p)) {
    LaunchOverlapped(stream, BlocksFor(context, std::max(packets, Packets(p, p.rank))), kThreads, 0,
                     places % 8 == 0 ? push_columns_kernel<true> : push_columns_kernel<false>, p);
    return;
  }
  const bool aligned = (places | slices) % 16 == 0;
  LaunchOverlapped(stream, BlocksFor(context, most / (aligned ? 16 * kVectors : 1)), kThreads, 0,
                   aligned ? gather_columns_kernel<uint4> : gather_columns_kernel<uint8_t>, p);
}

}  // namespace sm12x::gather_columns
using namespace sm12x::gather_columns;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xGatherColumns =
    MakeSm12xEntry<GatherColumnsParams, &Launch>("sm12x.gather_columns", 1);

}  // namespace dsv4
