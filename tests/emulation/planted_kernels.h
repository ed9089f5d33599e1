// SPDX-License-Identifier: Apache-2.0
// Kernels with mistakes that the emulation is to find, and ones without. Each runs one block,
// unless it says otherwise.
#pragma once

#include <cstdint>
#include <vector>

namespace dsv4::emulation {

// Threads write a number each and read their neighbour's, with a barrier in between or none: of the
// block, of its warps by name, or of the lanes of each warp, who then read each other's alone, or
// do not.
enum class Between { kNothing, kBlock, kNamed, kLanes, kLanesOnly };
std::vector<int> ReadNeighbours(int threads, Between between, bool dynamic);
// The same place is read before and written after, with a barrier or none.
void WriteWhatOthersRead(bool barrier);
// All threads write the same place, the same number or another each.
void WriteTogether(bool same);
// A thread writes a byte of a word that another one reads: another byte, the same one or the word.
enum class Reads { kOtherByte, kSameByte, kWord };
void WriteByteOfWord(Reads reads);
// All threads add to one number.
int AddTogether(int threads);

// What a thread sees of a copy to shared memory, waited for or not.
uint32_t ReadCopy(bool wait);
// Two warps hand stages over in one place of shared memory, which both copy to and read: all
// threads arrive at one mbarrier when their copies are made, and the warps at another when they
// have read. What each thread read; or a step is left out: waiting for the copies, waiting for the
// readers, that the lanes of a warp have read before one of them says so, one thread's arrival, the
// last wait.
enum class HandOver { kRight, kNoWait, kNoReaders, kNoLanes, kNoArrival, kNoEnd };
std::vector<uint32_t> PassStages(HandOver how);
// Reads shared memory that was not written.
uint32_t ReadUnwritten();

// `blocks` blocks of 64 threads give each other words and wait for them; what each thread of each
// block read. With `silent`, one block gives none.
std::vector<uint32_t> HandWordsAround(unsigned blocks, bool silent);

void WriteBehindSharedMemory();
void HalfAWarpWaits();
void LanesAtDifferentInstructions();
void SomeThreadsAtABarrier();

// d = a b + c by one warp, by the products that kernels use: a [16, K], b [K, 8], d [16, 8], as
// codes of their types; scales a byte a row and a column.
struct Product {
  std::vector<uint32_t> a, b;
  std::vector<uint8_t> a_scales, b_scales;
  std::vector<float> c;
};
// kInt8K16: K of 16. Int8 products have one c, that of the first element.
enum class ProductType { kBf16, kF16, kE4M3, kE2M1, kInt8, kInt8K16 };
std::vector<float> Multiply(ProductType type, const Product& product);

}  // namespace dsv4::emulation
