// SPDX-License-Identifier: Apache-2.0
#include "tests/emulation/block.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/emulation/fiber.h"
#include "tests/emulation/races.h"

dsv4::emulation::Index3 threadIdx, blockIdx, blockDim, gridDim;

namespace dsv4::emulation {
namespace {

constexpr unsigned kMostThreads = 1024, kLanes = 32, kMostWarps = kMostThreads / kLanes;
constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kMostSharedBytes = size_t{256} << 10;
constexpr int kPoison = 0xff;

struct Copy {
  void* to;
  const void* from;
  int bytes;
};

// A thread's copies that it has not waited for: [begin, end), in groups that end at a copy each;
// both are rings.
struct Copies {
  static constexpr size_t kMost = 512;
  Copy copies[kMost];
  size_t groups[kMost];
  size_t begin = 0, end = 0, first_group = 0, last_group = 0;
};

struct Thread {
  Fiber fiber;
  unsigned index = 0;
  Copies copies;
};

struct Barrier {
  unsigned arrived = 0;
  int sum = 0, result = 0;
  uint64_t rounds = 0;
  uint32_t waiting[kMostWarps] = {};
};

struct Mbarrier {
  const void* at = nullptr;
  uint32_t count = 0, arrived = 0;
  uint64_t phases = 0;       // that have ended
  std::vector<Copy> copies;  // to be made when somebody waits,
  uint32_t later = 0;        // and so many that arrive then
  uint32_t arrivers[kMostWarps] = {}, waiting[kMostWarps] = {};
  Clock clock = {}, ended = {};

  bool IsWaitedFor() const {
    return std::any_of(std::begin(waiting), std::end(waiting), [](uint32_t w) { return w != 0; });
  }
};

// What some lanes of a warp do together.
struct Meeting {
  uint32_t mask = 0, arrived = 0;
  const char* what = nullptr;
  uint64_t rounds = 0;
};

struct Warp {
  uint32_t ready = 0;
  Meeting meetings[kLanes];  // of those whose lowest lane it is
  std::byte given[kLanes][kExchangeBytes];
  std::byte got[kLanes][kExchangeBytes];
};

// Memory whose last byte is followed by a page that cannot be touched.
std::byte* Guarded(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  bytes = (bytes + page - 1) / page * page;
  void* const memory = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  mprotect(static_cast<std::byte*>(memory) + bytes, page, PROT_NONE);
  return static_cast<std::byte*>(memory);
}

// What runs a block, until it ends.
struct Multiprocessor {
  Index3 block;
  std::vector<Thread> threads;
  std::vector<Warp> warps = std::vector<Warp>(kMostWarps);
  Barrier barriers[16];
  std::vector<Mbarrier> mbarriers;  // of the block
  std::vector<std::byte*> stacks;
  std::byte* shared_end = Guarded(kMostSharedBytes) + kMostSharedBytes;
  std::byte* shared = nullptr;
  Thread* running = nullptr;
  unsigned alive = 0;
  unsigned ready[kMostWarps] = {}, ready_count = 0;  // warps with threads that are
  uint32_t paused[kMostWarps] = {};                  // threads that wait for other blocks
  RaceBlock races;

  bool IsPaused() const {
    return std::any_of(std::begin(paused), std::end(paused), [](uint32_t w) { return w != 0; });
  }
};

struct Machine {
  std::recursive_mutex mutex;  // a grid at a time
  std::vector<std::unique_ptr<Multiprocessor>> multiprocessors;
  const std::function<void()>* body = nullptr;
  Fiber host;
  uint64_t lot = 1;
  uint64_t words = 0;  // that blocks have given to others
};
Machine machine;
// Of the block that runs.
Multiprocessor* current = nullptr;

[[noreturn]] void Fail(const char* what) {
  std::fprintf(stderr, "emulated block (%u, %u, %u), thread %u of %u: %s\n", blockIdx.x, blockIdx.y,
               blockIdx.z, threadIdx.x, blockDim.x, what);
  std::abort();
}

// The next number below `count`, from a sequence that is the same in every run.
unsigned DrawLot(unsigned count) {
  machine.lot = machine.lot * 6364136223846793005u + 1442695040888963407u;
  return static_cast<unsigned>((machine.lot >> 32) * count >> 32);
}

void MakeReady(unsigned warp, uint32_t lanes) {
  if (lanes == 0) return;
  if (current->warps[warp].ready == 0) current->ready[current->ready_count++] = warp;
  current->warps[warp].ready |= lanes;
}

// The thread that is next: a warp's, as long as it has one that is ready.
Thread& Next() {
  unsigned& last = current->ready[current->ready_count - 1];
  if (current->running == nullptr || current->running->index / kLanes != last) {
    std::swap(current->ready[DrawLot(current->ready_count)], last);
  }
  const unsigned warp = last, turned = DrawLot(kLanes);
  uint32_t& ready = current->warps[warp].ready;
  const int at = std::countr_zero(std::rotr(ready, static_cast<int>(turned)));
  const unsigned lane = (static_cast<unsigned>(at) + turned) % kLanes;
  ready &= ~(1u << lane);
  if (ready == 0) --current->ready_count;
  return current->threads[warp * kLanes + lane];
}

[[noreturn]] void FailAllWait() {
  for (const Warp& warp : current->warps) {
    for (const Meeting& meeting : warp.meetings) {
      if (meeting.arrived == 0) continue;
      std::fprintf(stderr, "lanes %08x of %08x wait for the others at %s\n", meeting.arrived,
                   meeting.mask, meeting.what);
    }
  }
  for (int i = 0; i < 16; ++i) {
    if (current->barriers[i].arrived == 0) continue;
    std::fprintf(stderr, "%u threads wait at barrier %d\n", current->barriers[i].arrived, i);
  }
  for (const Mbarrier& one : current->mbarriers) {
    if (!one.IsWaitedFor()) continue;
    std::fprintf(stderr, "threads wait at the mbarrier at byte %td, where %u of %u have arrived\n",
                 static_cast<const std::byte*>(one.at) - current->shared, one.arrived, one.count);
  }
  Fail("all threads wait");
}

// To a thread that is ready, or to the host when all have ended.
void SwitchAway() {
  EndTurn();
  Thread& from = *current->running;
  if (current->ready_count == 0) {
    if (current->alive != 0 && !current->IsPaused()) FailAllWait();
    Fiber::Switch(from.fiber, machine.host);
    return;
  }
  Thread& to = Next();
  if (&to == &from) return;
  current->running = &to;
  threadIdx = {to.index, 0, 0};
  Fiber::Switch(from.fiber, to.fiber);
}

void Open(Barrier& barrier) {
  barrier.result = std::exchange(barrier.sum, 0);
  barrier.arrived = 0;
  ++barrier.rounds;
  uint32_t warps = 0;
  for (unsigned warp = 0; warp * kLanes < blockDim.x; ++warp) {
    if (barrier.waiting[warp] == 0) continue;
    warps |= 1u << warp;
    MakeReady(warp, std::exchange(barrier.waiting[warp], 0));
  }
  OrderWarps(warps);
}

int Wait(Barrier& barrier, unsigned threads, int value) {
  const unsigned self = current->running->index;
  const uint64_t round = barrier.rounds;
  barrier.sum += value;
  barrier.waiting[self / kLanes] |= 1u << self % kLanes;
  if (++barrier.arrived == threads) Open(barrier);
  SwitchAway();
  if (barrier.rounds == round) Fail("woken at a closed barrier");
  return barrier.result;
}

void RunThread() {
  (*machine.body)();
  --current->alive;
  // A barrier of the whole block does not wait for threads that have ended.
  if (current->barriers[0].arrived != 0 && current->barriers[0].arrived == current->alive)
    Open(current->barriers[0]);
  SwitchAway();
  Fail("a thread that ended continues");
}

void Begin(Index3 block, unsigned threads, size_t shared_bytes) {
  Multiprocessor& m = *current;
  m.block = block;
  m.shared = m.shared_end - (shared_bytes + 127) / 128 * 128;
  std::memset(m.shared, kPoison, static_cast<size_t>(m.shared_end - m.shared));
  BeginRaceBlock(m.shared, m.shared_end, &m.races);
  m.mbarriers.clear();
  m.alive = threads;
  if (m.threads.size() < threads) m.threads = std::vector<Thread>(threads);
  while (m.stacks.size() < threads) m.stacks.push_back(Guarded(kStackBytes));
  for (unsigned i = 0; i < threads; ++i) {
    Thread& thread = m.threads[i];
    thread.index = i;
    thread.copies.begin = thread.copies.end = 0;
    thread.copies.first_group = thread.copies.last_group = 0;
    // What is at the same place of each page would have the same few lines of the cache.
    const size_t apart = i % 64 * 320;
    thread.fiber.Begin(m.stacks[i], kStackBytes - apart, RunThread);
    MakeReady(i / kLanes, 1u << i % kLanes);
  }
}

// Runs the current block until it ends (true) or all of its threads that could run wait for other
// blocks (false).
bool Continue() {
  Multiprocessor& m = *current;
  blockIdx = m.block;
  UseRaceBlock(&m.races);
  for (unsigned warp = 0; warp < kMostWarps; ++warp) {
    MakeReady(warp, std::exchange(m.paused[warp], 0));
  }
  m.running = nullptr;
  m.running = &Next();
  threadIdx = {m.running->index, 0, 0};
  Fiber::Switch(machine.host, m.running->fiber);
  if (m.alive != 0) return false;
  for (const Barrier& barrier : m.barriers) {
    if (barrier.arrived != 0) Fail("threads end while others wait at a barrier");
  }
  for (const Mbarrier& one : m.mbarriers) {
    if (!one.copies.empty()) Fail("a block ends while its copies are under way");
  }
  return true;
}

// The multiprocessor `index`, for the next calls.
void Use(size_t index) {
  auto& all = machine.multiprocessors;
  while (all.size() <= index) all.push_back(std::make_unique<Multiprocessor>());
  current = all[index].get();
}

Mbarrier& MbarrierAt(const void* at) {
  NoteAtomic(at, sizeof(uint64_t));
  for (Mbarrier& one : current->mbarriers) {
    if (one.at == at) return one;
  }
  Fail("there is no mbarrier");
}

void EndPhase(Mbarrier& one) {
  if (one.arrived != one.count) return;
  one.arrived = 0;
  ++one.phases;
  one.ended = one.clock;
  for (unsigned warp = 0; warp < kMostWarps; ++warp) {
    one.arrivers[warp] = 0;
    MakeReady(warp, std::exchange(one.waiting[warp], 0));
  }
}

void MakeCopies(Mbarrier& one) {
  for (const auto& [to, from, bytes] : one.copies) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  one.copies.clear();
  one.arrived += std::exchange(one.later, 0);
  EndPhase(one);
}

// The mbarrier, with the phase that is under way: not one that ends once its copies are made.
Mbarrier& CurrentPhaseAt(const void* at) {
  Mbarrier& one = MbarrierAt(at);
  if (one.arrived + one.later == one.count) MakeCopies(one);
  return one;
}

// The running thread arrives, or will.
Mbarrier& NoteArrival(void* at) {
  Mbarrier& one = CurrentPhaseAt(at);
  if (one.arrived + one.later == one.count) Fail("more threads arrive than the mbarrier counts");
  const unsigned self = current->running->index;
  uint32_t& arrivers = one.arrivers[self / kLanes];
  arrivers |= 1u << self % kLanes;
  Release(one.clock, arrivers == 0xffffffffu);
  return one;
}

}  // namespace

void RunGrid(Index3 blocks, unsigned threads, size_t shared_bytes,
             const std::function<void()>& thread) {
  const std::lock_guard lock(machine.mutex);
  if (threads == 0 || threads > kMostThreads || shared_bytes > kMostSharedBytes) {
    Fail("no such launch");
  }
  Use(0);
  machine.body = &thread;
  blockDim = {threads, 1, 1};
  gridDim = blocks;
  std::vector<Index3> order;
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) order.push_back({x, y, z});
    }
  }
  for (unsigned i = static_cast<unsigned>(order.size()); i > 1; --i) {
    std::swap(order[i - 1], order[DrawLot(i)]);
  }
  // Blocks that wait for others stay where they are; the next one begins beside them.
  size_t resident = 0;
  for (const Index3& block : order) {
    Use(resident);
    Begin(block, threads, shared_bytes);
    if (!Continue()) ++resident;
  }
  std::vector<size_t> waiting(resident);
  std::iota(waiting.begin(), waiting.end(), size_t{0});
  while (!waiting.empty()) {
    const uint64_t before = machine.words;
    const size_t ended = std::erase_if(waiting, [](size_t index) {
      Use(index);
      return Continue();
    });
    if (ended == 0 && machine.words == before) Fail("all blocks wait for each other");
  }
}

void WaitForOtherBlocks() {
  const unsigned self = current->running->index;
  current->paused[self / kLanes] |= 1u << self % kLanes;
  SwitchAway();
}

void GiveToOtherBlocks(uint32_t* to, uint32_t value) {
  ++machine.words;
  *to = value;
}

std::byte* DynamicSharedMemory() { return current->shared; }

int SyncBlock(int value) { return Wait(current->barriers[0], current->alive, value); }

void SyncSome(int id, int threads) {
  if (id < 1 || id > 15 || threads <= 0 || threads % 32 != 0) Fail("no such barrier");
  Wait(current->barriers[id], static_cast<unsigned>(threads), 0);
}

void CopyLater(void* to, const void* from, int bytes) {
  const auto size = static_cast<uintptr_t>(bytes);
  if (reinterpret_cast<uintptr_t>(to) % size != 0 ||
      reinterpret_cast<uintptr_t>(from) % size != 0) {
    Fail("a copy of bytes that are not aligned");
  }
  Copies& copies = current->running->copies;
  if (copies.end - copies.begin == Copies::kMost) Fail("too many copies under way");
  NoteCopy(to, bytes);
  std::memset(to, kPoison, size);
  copies.copies[copies.end++ % Copies::kMost] = {to, from, bytes};
}

void CommitCopies() {
  Copies& copies = current->running->copies;
  if (copies.last_group - copies.first_group == Copies::kMost) Fail("too many groups of copies");
  copies.groups[copies.last_group++ % Copies::kMost] = copies.end;
}

void WaitForCopies(int pending) {
  Copies& copies = current->running->copies;
  while (copies.last_group - copies.first_group > static_cast<size_t>(pending)) {
    const size_t end = copies.groups[copies.first_group++ % Copies::kMost];
    for (; copies.begin < end; ++copies.begin) {
      const auto [to, from, bytes] = copies.copies[copies.begin % Copies::kMost];
      NoteCopy(to, bytes);
      std::memcpy(to, from, static_cast<size_t>(bytes));
    }
  }
}

void InitMbarrier(void* at, uint32_t count) {
  NoteCopy(at, sizeof(uint64_t));
  for (const Mbarrier& one : current->mbarriers) {
    if (one.at == at) Fail("an mbarrier is initialised that has not been invalidated");
  }
  if (reinterpret_cast<uintptr_t>(at) % sizeof(uint64_t) != 0 || count == 0) {
    Fail("no such mbarrier");
  }
  Mbarrier& one = current->mbarriers.emplace_back();
  one.at = at;
  one.count = count;
}

void InvalidateMbarrier(void* at) {
  NoteCopy(at, sizeof(uint64_t));
  const size_t removed =
      std::erase_if(current->mbarriers, [at](const Mbarrier& one) { return one.at == at; });
  if (removed == 0) Fail("there is no mbarrier to invalidate");
}

void Arrive(void* at) {
  Mbarrier& one = NoteArrival(at);
  ++one.arrived;
  if (one.IsWaitedFor()) MakeCopies(one);
  EndPhase(one);
}

void ArriveAfterCopies(void* at) {
  Mbarrier& one = NoteArrival(at);
  Copies& copies = current->running->copies;
  for (; copies.begin < copies.end; ++copies.begin) {
    one.copies.push_back(copies.copies[copies.begin % Copies::kMost]);
  }
  copies.first_group = copies.last_group;
  ++one.later;
  if (one.IsWaitedFor()) MakeCopies(one);
}

void WaitForPhase(void* at, uint32_t parity) {
  Mbarrier& one = MbarrierAt(at);
  if (one.phases % 2 == parity) MakeCopies(one);
  if (one.phases % 2 == parity) {
    const unsigned self = current->running->index;
    one.waiting[self / kLanes] |= 1u << self % kLanes;
    SwitchAway();
  }
  const Mbarrier& ended = MbarrierAt(at);
  if (ended.phases % 2 == parity) Fail("woken before the phase had ended");
  Acquire(ended.ended);
}

Exchange ExchangeOfWarp() {
  Warp& warp = current->warps[current->running->index / kLanes];
  return {current->running->index % kLanes, warp.given, warp.got};
}

bool Meet(uint32_t mask, const char* what) {
  const unsigned lane = current->running->index % kLanes;
  if ((mask >> lane & 1) == 0) Fail("a lane that its own mask leaves out");
  Meeting& meeting = current->warps[current->running->index / kLanes].meetings[__builtin_ctz(mask)];
  if (meeting.arrived == 0) {
    meeting.mask = mask;
    meeting.what = what;
  } else if (meeting.mask != mask ||
             (meeting.what != what && std::strcmp(meeting.what, what) != 0)) {
    std::fprintf(stderr, "%s with mask %08x, but %s with mask %08x\n", what, mask, meeting.what,
                 meeting.mask);
    Fail("lanes of a warp at different instructions");
  }
  meeting.arrived |= 1u << lane;
  const bool last = meeting.arrived == mask;
  if (!last) {
    const uint64_t round = meeting.rounds;
    SwitchAway();
    if (meeting.rounds == round) Fail("woken before all lanes had come");
  }
  return last;
}

void Part(uint32_t mask) {
  const unsigned self = current->running->index;
  Meeting& meeting = current->warps[self / kLanes].meetings[__builtin_ctz(mask)];
  meeting.arrived = 0;
  ++meeting.rounds;
  if (mask == 0xffffffffu) OrderLanes(self / kLanes);
  MakeReady(self / kLanes, mask & ~(1u << self % kLanes));
}

}  // namespace dsv4::emulation
