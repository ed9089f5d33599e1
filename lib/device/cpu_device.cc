// SPDX-License-Identifier: Apache-2.0
#include "lib/device/cpu_device.h"

#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace dsv4 {
namespace {

// Spins before a waiting thread gives its core away: about 20 us, longer than the gap between two
// kernels of a step, shorter than a person notices on the battery.
constexpr int kSpins = 2000;

inline void CpuRelax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// The processor says it itself where it can; elsewhere only the system knows.
std::string CpuDevice::name() const {
#if defined(__x86_64__)
  constexpr unsigned kFirstPart = 0x80000002, kParts = 3;
  if (static_cast<unsigned>(__get_cpuid_max(0x80000000, nullptr)) >= kFirstPart + kParts - 1) {
    unsigned registers[kParts][4];
    for (unsigned part = 0; part < kParts; ++part) {
      unsigned* words = registers[part];
      __get_cpuid(kFirstPart + part, &words[0], &words[1], &words[2], &words[3]);
    }
    char brand[sizeof registers + 1] = {};
    std::memcpy(brand, registers, sizeof registers);
    const absl::string_view name = absl::StripAsciiWhitespace(brand);
    if (!name.empty()) return std::string(name);
  }
#endif
  return "cpu";
}

CpuStream::CpuStream(int threads) : workers_(static_cast<size_t>(std::max(threads - 1, 0))) {
  for (Worker& worker : workers_) {
    worker.stream = this;
    worker.index = started_ + 1;
    start_error_ = worker.thread.Start(WorkerMain, &worker);
    if (start_error_ != 0) return;
    ++started_;
  }
}

void CpuStream::WorkerMain(void* worker) {
  const Worker& self = *static_cast<const Worker*>(worker);
  self.stream->WorkerLoop(self.index);
}

CpuStream::~CpuStream() {
  stop_.store(true);
  epoch_.value.fetch_add(2);  // still even: no job, but sleepers see a change
  epoch_.WakeAll();
  for (int i = 0; i < started_; ++i) workers_[static_cast<size_t>(i)].thread.Join();
}

void CpuStream::RunUnits(int worker) {
  for (int64_t unit; (unit = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) {
    fn_(context_, unit, worker);
  }
}

void CpuStream::Run(int64_t count, UnitFn fn, void* context) {
  fn_ = fn;
  context_ = context;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  epoch_.value.fetch_add(1);  // odd: open
  epoch_.WakeAll();
  RunUnits(0);
  // Close before waiting: a worker that comes later finds the job closed and touches nothing. The
  // sequentially consistent order of (close, read active_) here and (raise active_, read epoch_)
  // there makes one of the two see the other.
  epoch_.value.fetch_add(1);
  for (int spins = 0; active_.load() != 0; ++spins) {
    if (spins < kSpins) {
      CpuRelax();
    } else {
      std::this_thread::yield();
    }
  }
}

void CpuStream::WorkerLoop(int worker) {
  uint32_t seen = 0;
  int spins = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint32_t epoch = epoch_.value.load(std::memory_order_acquire);
    if (epoch == seen || epoch % 2 == 0) {
      if (++spins < kSpins) {
        CpuRelax();
      } else {
        epoch_.WaitWhile(epoch);
        spins = 0;
      }
      continue;
    }
    seen = epoch;
    spins = 0;
    active_.fetch_add(1);
    if (epoch_.value.load() % 2 == 1) RunUnits(worker);
    active_.fetch_sub(1);
  }
}

}  // namespace dsv4
