// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/planted_kernels.h"

#include "kernels/sm12x/arch/memory.cuh"
#include "kernels/sm12x/arch/mma_instructions.cuh"
#include "kernels/sm12x/arch/signals.cuh"
#include "kernels/sm12x/arch/threads.cuh"
#include "tests/emulation/device.h"

namespace dsv4::emulation {
namespace {

template <class Kernel>
void RunBlock(int threads, size_t shared_bytes, Kernel kernel) {
  RunGrid({1, 1, 1}, static_cast<unsigned>(threads), shared_bytes, kernel);
}

}  // namespace

std::vector<int> ReadNeighbours(int threads, Between between, bool dynamic) {
  std::vector<int> read(static_cast<size_t>(threads));
  RunBlock(threads, static_cast<size_t>(threads) * sizeof(int), [&] {
    __shared__ int fixed[1024];
    int* const numbers = dynamic ? sm12x::DynamicShared<int>() : fixed;
    const int self = static_cast<int>(threadIdx.x);
    numbers[self] = self;
    int neighbour = (self + 1) % threads;
    switch (between) {
      case Between::kNothing:
        break;
      case Between::kBlock:
        __syncthreads();
        break;
      case Between::kNamed:
        sm12x::WaitAtBarrier(3, threads);
        break;
      case Between::kLanes:
        __syncwarp();
        neighbour = self / 32 * 32 + (self + 1) % 32;
        break;
      case Between::kLanesOnly:
        __syncwarp();
        break;
    }
    read[threadIdx.x] = numbers[neighbour];
  });
  return read;
}

void WriteWhatOthersRead(bool barrier) {
  int sum = 0;
  RunBlock(64, 0, [&] {
    __shared__ int number;
    if (threadIdx.x == 0) number = 1;
    __syncthreads();
    sum += number;
    if (barrier) __syncthreads();
    if (threadIdx.x == 40) number = 2;
  });
}

void WriteTogether(bool same) {
  RunBlock(64, 0, [&] {
    __shared__ volatile int number;
    number = same ? 7 : static_cast<int>(threadIdx.x) + 8;
  });
}

void WriteByteOfWord(Reads reads) {
  int sum = 0;
  RunBlock(64, 4, [&] {
    auto* const word = sm12x::DynamicShared<int>();
    if (threadIdx.x == 0) *word = 0;
    __syncthreads();
    auto* const bytes = reinterpret_cast<volatile char*>(word);
    if (threadIdx.x == 5) bytes[2] = 1;
    if (threadIdx.x == 40)
      sum += reads == Reads::kWord ? *word : bytes[reads == Reads::kSameByte ? 2 : 1];
  });
}

int AddTogether(int threads) {
  int result = 0;
  RunBlock(threads, 0, [&] {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, 1);
    __syncthreads();
    if (threadIdx.x == 0) result = sum;
  });
  return result;
}

uint32_t ReadCopy(bool wait) {
  alignas(16) const uint32_t from[4] = {1, 2, 3, 4};
  uint32_t read = 0;
  RunBlock(1, 16, [&] {
    auto* const to = sm12x::DynamicShared<uint32_t>();
    sm12x::CopyAsync16(to, from);
    sm12x::CommitCopies();
    if (wait) sm12x::WaitForCopies<0>();
    read = to[2];
  });
  return read;
}

std::vector<uint32_t> PassStages(HandOver how) {
  constexpr unsigned kThreads = 64, kStages = 3;
  alignas(16) uint32_t from[kStages][kThreads][4];
  for (unsigned i = 0; i < sizeof from / 4; ++i) from[0][0][i] = i;
  std::vector<uint32_t> read(kThreads);
  RunBlock(kThreads, 16 + sizeof from[0], [&] {
    auto* const full = sm12x::DynamicShared<uint64_t>();
    uint64_t* const empty = full + 1;
    auto* const place = reinterpret_cast<uint32_t(*)[4]>(full + 2);
    const unsigned self = threadIdx.x;
    if (self == 0) {
      sm12x::InitMbarrier(full, kThreads);
      sm12x::InitMbarrier(empty, kThreads / 32);
    }
    __syncthreads();
    for (unsigned stage = 0; stage < kStages; ++stage) {
      if (how != HandOver::kNoReaders) sm12x::WaitForPhase(empty, stage % 2 ^ 1);
      sm12x::CopyAsync16(place[self], from[stage][self]);
      if (how != HandOver::kNoArrival || self != 5) sm12x::ArriveAfterCopies(full);
      if (how == HandOver::kNoEnd && stage + 1 == kStages) return;
      if (how != HandOver::kNoWait) sm12x::WaitForPhase(full, stage % 2);
      read[self] += place[(self + 32) % kThreads][1];
      if (how != HandOver::kNoLanes) __syncwarp();
      if (self % 32 == 0) sm12x::Arrive(empty);
    }
  });
  return read;
}

uint32_t ReadUnwritten() {
  uint32_t read = 0;
  RunBlock(1, 16, [&] { read = *sm12x::DynamicShared<uint32_t>(); });
  return read;
}

std::vector<uint32_t> HandWordsAround(unsigned blocks, bool silent) {
  constexpr unsigned kThreads = 64;
  std::vector<uint32_t> words(blocks * kThreads), read(words.size());
  RunGrid({blocks, 1, 1}, kThreads, kThreads * sizeof(uint32_t), [&] {
    auto* const own = sm12x::DynamicShared<uint32_t>();
    const unsigned self = threadIdx.x, next = (blockIdx.x + 1) % gridDim.x;
    own[self] = 1000 * blockIdx.x + self;
    __syncthreads();
    if (!silent || blockIdx.x != 1) {
      sm12x::StoreWordRelaxed(&words[blockIdx.x * kThreads + self], own[self ^ 1] + 1);
    }
    const uint32_t* const from = &words[next * kThreads + self / 4 * 4];
    uint4 found;
    while (true) {
      found = sm12x::LoadWordsRelaxed(from);
      if (!__any_sync(0xffffffffu, found.x == 0 || found.y == 0 || found.z == 0 || found.w == 0)) {
        break;
      }
      sm12x::PauseForOtherBlocks();
    }
    __syncthreads();
    // What the block itself had in shared memory is still there.
    read[blockIdx.x * kThreads + self] = found.y - 1000 * next + own[self] - 1000 * blockIdx.x;
  });
  return read;
}

void WriteBehindSharedMemory() {
  RunBlock(1, 128, [] {
    auto* const memory = sm12x::DynamicShared<volatile char>();
    memory[128] = 1;
  });
}

void HalfAWarpWaits() {
  RunBlock(32, 0, [] {
    if (threadIdx.x < 16) __syncwarp();
  });
}

void LanesAtDifferentInstructions() {
  RunBlock(32, 0, [] {
    if (threadIdx.x < 16) {
      __shfl_sync(0xffffffffu, 1, 0);
    } else {
      __ballot_sync(0xffffffffu, 1);
    }
  });
}

void SomeThreadsAtABarrier() {
  RunBlock(64, 0, [] {
    if (threadIdx.x < 32) sm12x::WaitAtBarrier(2, 64);
  });
}

std::vector<float> Multiply(ProductType type, const Product& product) {
  std::vector<float> out(16 * 8);
  RunBlock(32, 0, [&] {
    // The elements of each lane, as "Matrix Fragments" of the PTX ISA numbers them.
    const bool bytes = type != ProductType::kBf16 && type != ProductType::kF16;
    const int group = static_cast<int>(threadIdx.x) / 4, id = static_cast<int>(threadIdx.x) % 4;
    const int width = bytes && type != ProductType::kInt8K16 ? 32 : 16;
    const int of_word = bytes ? 4 : 2, bits = 32 / of_word, b_words = width / 4 / of_word;
    uint32_t a[4] = {}, b[2] = {};
    for (int i = 0; i < 2 * b_words * of_word; ++i) {
      const bool upper = bytes ? (i >= 4 && i < 8) || i >= 12 : (i >= 2 && i < 4) || i >= 6;
      const int row = group + (upper ? 8 : 0);
      const int column = id * of_word + i % of_word + (i >= 2 * of_word ? width / 2 : 0);
      a[i / of_word] |= product.a[static_cast<size_t>(row * width + column)] << i % of_word * bits;
    }
    for (int i = 0; i < b_words * of_word; ++i) {
      const int row = id * of_word + i % of_word + (i >= of_word ? width / 2 : 0);
      b[i / of_word] |= product.b[static_cast<size_t>(row * 8 + group)] << i % of_word * bits;
    }
    float d[4];
    const auto place = [&](int i) {
      return static_cast<size_t>((group + (i < 2 ? 0 : 8)) * 8 + id * 2 + i % 2);
    };
    for (int i = 0; i < 4; ++i) d[i] = product.c[place(i)];
    switch (type) {
      case ProductType::kBf16:
        sm12x::MmaBf16(d, a[0], a[1], a[2], a[3], b[0], b[1]);
        break;
      case ProductType::kF16:
        sm12x::MmaF16(d, a[0], a[1], a[2], a[3], b[0], b[1]);
        break;
      case ProductType::kE4M3:
      case ProductType::kE2M1: {
        // By {0, 0}, pairs of lanes give the rows' scales and the first of four the columns'; what
        // the others have does not count.
        constexpr uint32_t kOther = 0x01010101;
        const size_t row = static_cast<size_t>(group + (id == 1 ? 8 : 0));
        const uint32_t a_scale = id < 2 ? product.a_scales[row] : kOther;
        const uint32_t b_scale = id == 0 ? product.b_scales[static_cast<size_t>(group)] : kOther;
        if (type == ProductType::kE4M3) {
          sm12x::MmaScaledE4M3(d, make_uint4(a[0], a[1], a[2], a[3]), b[0], b[1], a_scale, b_scale);
        } else {
          sm12x::MmaScaledE2M1<2>(d, a, b[0], b[1], a_scale << 16 | (kOther & 0xff00ffff), b_scale);
        }
        break;
      }
      case ProductType::kInt8:
      case ProductType::kInt8K16: {
        const auto c = static_cast<int32_t>(product.c[0]);
        int32_t sums[4];
        if (type == ProductType::kInt8) {
          sm12x::MmaInt8K32(sums, a, b[0], b[1], c);
        } else {
          sm12x::MmaInt8K16(sums, a[0], a[1], b[0], c);
        }
        for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(sums[i]);
        break;
      }
    }
    for (int i = 0; i < 4; ++i) out[place(i)] = d[i];
  });
  return out;
}

}  // namespace dsv4::emulation
