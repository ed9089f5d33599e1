// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/races.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/emulation/block.h"

// Of the executable: where `static` variables are, which stand for static shared memory.
extern "C" char __data_start, _end, __executable_start;

namespace dsv4::emulation {

constexpr unsigned kWarps = 32, kLanes = 32;

// An access: 21 bits of its warp's time, then the thread, then whether it was atomic. 0: none.
using Stamp = uint32_t;
constexpr Stamp kAtomic = 1;
constexpr unsigned ThreadOf(Stamp stamp) { return stamp >> 1 & 1023; }
constexpr unsigned TimeOf(Stamp stamp) { return stamp >> 11; }

// Who wrote a piece of memory last, and of each warp who read it last. Of several lanes that read
// it at the same time the last counts; a lane that reads and writes then may go unseen.
struct Piece {
  Stamp written;
  uint32_t readers;  // warps with a stamp
  Stamp read[kWarps];
};

// 64 bytes as 16 words. A word that was accessed in part is split into its bytes.
struct Cell {
  uint64_t block = 0;  // that it is of; older ones count as empty
  uint32_t split;
  Piece words[16];
  std::unique_ptr<Piece[]> bytes;  // [64], of words that are split
};
constexpr size_t kWord = 4;

void CellDeleter::operator()(Cell* cell) const { delete cell; }

Cell& Region::CellOf(const char* at) {
  auto& cell = cells[static_cast<size_t>(at - begin) / 64];
  if (cell == nullptr) cell.reset(new Cell());
  return *cell;
}

namespace {

// A write over another's, which is none if both write the same: known when it is done.
struct Overwrite {
  const char* at = nullptr;
  size_t bytes = 0;
  char before[kWord] = {};
  Stamp other = 0;
  const void* code = nullptr;
};

struct State {
  Region fixed;
  Overwrite overwrites[16];
  unsigned overwrite_count = 0;
  uint64_t blocks = 0;  // so far
};
constinit State state;
RaceBlock none;
RaceBlock* running = &none;

[[noreturn]] void Report(const char* what, const char* at, Stamp other, const void* code) {
  const bool dynamic = running->dynamic.Has(at);
  const char* const begin = dynamic ? running->dynamic.begin : &__executable_start;
  std::fprintf(stderr,
               "emulated block (%u, %u, %u) of %u threads: thread %u %s while thread %u may still "
               "be at it (%s shared memory, byte %td; code at %#tx of the executable)\n",
               blockIdx.x, blockIdx.y, blockIdx.z, blockDim.x, threadIdx.x, what, ThreadOf(other),
               dynamic ? "dynamic" : "static", at - begin,
               static_cast<const char*>(code) - &__executable_start);
  std::abort();
}

bool Ordered(Stamp before, unsigned self) {
  const unsigned other = ThreadOf(before);
  if (before == 0 || other == self) return true;
  const auto& seen = running->seen[self / kLanes];
  const unsigned time = seen[other / kLanes];
  return other / kLanes == self / kLanes ? time > TimeOf(before) : time >= TimeOf(before);
}

void Settle() {
  for (unsigned i = 0; i < state.overwrite_count; ++i) {
    const Overwrite& one = state.overwrites[i];
    for (size_t byte = 0; byte < one.bytes; ++byte) {
      if (one.at[byte] == one.before[byte]) continue;
      Report("writes what another wrote,", one.at + byte, one.other, one.code);
    }
  }
  state.overwrite_count = 0;
}

// An access to the `bytes` at `at` that `piece` is of, a word or a byte.
template <bool kWrites>
void AccessPiece(Piece& piece, const char* at, size_t bytes, Stamp stamp, const void* code) {
  const unsigned self = ThreadOf(stamp), warp = self / kLanes;
  const Stamp written = piece.written;
  if (!Ordered(written, self) && (stamp & written & kAtomic) == 0) {
    if (!kWrites) Report("reads what another writes,", at, written, code);
    if (state.overwrite_count < std::size(state.overwrites)) {
      Overwrite& one = state.overwrites[state.overwrite_count++];
      one = {.at = at, .bytes = bytes, .other = written, .code = code};
      std::memcpy(one.before, at, bytes);
    }
  }
  if (!kWrites) {
    piece.readers |= 1u << warp;
    piece.read[warp] = stamp;
    return;
  }
  for (uint32_t left = piece.readers; left != 0; left &= left - 1) {
    const Stamp read = piece.read[std::countr_zero(left)];
    if (!Ordered(read, self)) Report("writes what another reads,", at, read, code);
  }
  piece.written = stamp;
  piece.readers = 0;
}

// The piece of the byte at `place` of the cell, whose word is split from here on.
Piece& ByteOf(Cell& cell, size_t place) {
  if (cell.bytes == nullptr) cell.bytes = std::make_unique<Piece[]>(64);
  const size_t word = place / kWord;
  if ((cell.split >> word & 1) == 0) {
    cell.split |= 1u << word;
    std::fill_n(&cell.bytes[word * kWord], kWord, cell.words[word]);
  }
  return cell.bytes[place];
}

template <bool kWrites>
[[gnu::noinline]] void AccessShared(Region& region, const char* at, size_t bytes, const void* code,
                                    bool atomic) {
  Settle();
  const unsigned self = threadIdx.x, warp = self / kLanes;
  const Stamp stamp = running->seen[warp][warp] << 11 | self << 1 | (atomic ? kAtomic : 0);
  while (bytes != 0) {
    Cell& cell = region.CellOf(at);
    const size_t place = static_cast<size_t>(at - region.begin) % 64;
    if (cell.block != running->number) {
      cell.block = running->number;
      cell.split = 0;
      for (Piece& word : cell.words) word.written = word.readers = 0;
    }
    size_t step = 1;
    if (place % kWord == 0 && bytes >= kWord && (cell.split >> place / kWord & 1) == 0) {
      step = kWord;
      AccessPiece<kWrites>(cell.words[place / kWord], at, step, stamp, code);
    } else {
      AccessPiece<kWrites>(ByteOf(cell, place), at, step, stamp, code);
    }
    at += step;
    bytes -= step;
  }
}

template <bool kWrites>
void Access(const void* memory, size_t bytes, const void* code, bool atomic = false) {
  const auto* at = static_cast<const char*>(memory);
  if (running->dynamic.Has(at)) AccessShared<kWrites>(running->dynamic, at, bytes, code, atomic);
  if (state.fixed.Has(at)) AccessShared<kWrites>(state.fixed, at, bytes, code, atomic);
}

}  // namespace

void UseRaceBlock(RaceBlock* block) { running = block; }

void BeginRaceBlock(const std::byte* shared, const std::byte* shared_end, RaceBlock* block) {
  running = block;
  block->number = ++state.blocks;
  Region& dynamic = running->dynamic;
  dynamic.begin = reinterpret_cast<const char*>(shared);
  dynamic.end = reinterpret_cast<const char*>(shared_end);
  if (dynamic.cells.empty()) dynamic.cells.resize(8192);
  if (state.fixed.begin == nullptr) {
    state.fixed.begin = &__data_start;
    state.fixed.end = &_end;
    state.fixed.cells.resize(static_cast<size_t>(&_end - &__data_start) / 64 + 1);
  }
  for (auto& seen : running->seen) std::fill_n(seen, kWarps, 0);
  for (unsigned warp = 0; warp < kWarps; ++warp) running->seen[warp][warp] = 1;
}

void OrderWarps(uint32_t warps) {
  auto& seen = running->seen;
  uint32_t all[kWarps] = {};
  for (uint32_t left = warps; left != 0; left &= left - 1) {
    const auto& one = seen[std::countr_zero(left)];
    for (unsigned i = 0; i < kWarps; ++i) all[i] = std::max(all[i], one[i]);
  }
  for (uint32_t left = warps; left != 0; left &= left - 1) {
    const int warp = std::countr_zero(left);
    std::copy_n(all, kWarps, seen[warp]);
    ++seen[warp][warp];
  }
}

void OrderLanes(unsigned warp) { ++running->seen[warp][warp]; }

void Release(Clock& clock, bool all_lanes) {
  const unsigned warp = threadIdx.x / kLanes;
  auto& seen = running->seen[warp];
  for (unsigned i = 0; i < kWarps; ++i) {
    clock[i] = std::max(clock[i], i == warp && !all_lanes ? seen[i] - 1 : seen[i]);
  }
  if (all_lanes) ++seen[warp];
}

void Acquire(const Clock& clock) {
  auto& seen = running->seen[threadIdx.x / kLanes];
  for (unsigned i = 0; i < kWarps; ++i) seen[i] = std::max(seen[i], clock[i]);
}

void EndTurn() { Settle(); }

void NoteCopy(const void* to, int bytes) {
  Access<true>(to, static_cast<unsigned>(bytes), __builtin_return_address(0));
}

void NoteAtomic(const void* at, int bytes) {
  Access<true>(at, static_cast<unsigned>(bytes), __builtin_return_address(0), true);
}

}  // namespace dsv4::emulation

// What GCC calls.
#define DSV4_ACCESS(name, bytes, writes)                                     \
  void __tsan_##name(void* at) {                                             \
    dsv4::emulation::Access<writes>(at, bytes, __builtin_return_address(0)); \
  }
#define DSV4_ACCESSES(bytes)                       \
  DSV4_ACCESS(read##bytes, bytes, false)           \
  DSV4_ACCESS(write##bytes, bytes, true)           \
  DSV4_ACCESS(unaligned_read##bytes, bytes, false) \
  DSV4_ACCESS(unaligned_write##bytes, bytes, true)
// `after`: what comes in the place of the number `before`.
#define DSV4_ATOMIC(bits, name, after)                                                          \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile void* at, uint##bits##_t value, int) {   \
    dsv4::emulation::Access<true>(const_cast<void*>(at), bits / 8, __builtin_return_address(0), \
                                  true);                                                        \
    auto* const number = static_cast<volatile uint##bits##_t*>(at);                             \
    const uint##bits##_t before = *number;                                                      \
    *number = after;                                                                            \
    return before;                                                                              \
  }
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}  // of the host's code beside kernels
DSV4_ACCESSES(1)
DSV4_ACCESSES(2)
DSV4_ACCESSES(4)
DSV4_ACCESSES(8)
DSV4_ACCESSES(16)
void __tsan_read_range(void* at, size_t bytes) {
  dsv4::emulation::Access<false>(at, bytes, __builtin_return_address(0));
}
void __tsan_write_range(void* at, size_t bytes) {
  dsv4::emulation::Access<true>(at, bytes, __builtin_return_address(0));
}
DSV4_ATOMIC(32, fetch_add, before + value)
DSV4_ATOMIC(64, fetch_add, before + value)
DSV4_ATOMIC(32, exchange, value)
// Whether a `static` variable has been made.
uint8_t __tsan_atomic8_load(const volatile uint8_t* at, int) { return *at; }
// Of memory that other devices see, too, and that no block shares.
uint32_t __tsan_atomic32_load(const volatile uint32_t* at, int) { return *at; }
void __tsan_atomic32_store(volatile uint32_t* at, uint32_t value, int) { *at = value; }
uint64_t __tsan_atomic64_load(const volatile uint64_t* at, int) { return *at; }
void __tsan_atomic64_store(volatile uint64_t* at, uint64_t value, int) { *at = value; }
}
