// SPDX-License-Identifier: Apache-2.0
// A stream: the order in which an engine's kernels run on its device. The cpu stream owns worker
// threads and runs each kernel to its end before the next begins.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "lib/base/thread.h"
#include "lib/base/waitable_word.h"

namespace dsv4 {

class Stream {
 public:
  virtual ~Stream() = default;
};

// Runs the units of one kernel at a time on the calling thread and `threads - 1` workers. Used by
// one thread at a time. Between kernels the workers spin for a short while, then sleep.
class CpuStream final : public Stream {
 public:
  // Starts `threads` - 1 workers, or fewer if the system refuses: see threads() and start_error().
  explicit CpuStream(int threads);
  CpuStream(const CpuStream&) = delete;
  CpuStream& operator=(const CpuStream&) = delete;
  ~CpuStream() override;

  int threads() const { return started_ + 1; }
  int start_error() const {
    return start_error_;
  }  // the system's error of the first refused thread, or 0

  // Calls f(unit, worker) once for each unit in [0, count), in any order and concurrently, with
  // worker in [0, threads()) unique among the calls that run at the same time; returns when all are
  // done. f must not call ParallelFor. Allocates nothing.
  template <class F>
  void ParallelFor(int64_t count, F&& f) {
    if (count <= 1 || started_ == 0) {
      for (int64_t unit = 0; unit < count; ++unit) f(unit, 0);
      return;
    }
    using Function = std::remove_reference_t<F>;
    Run(
        count,
        [](void* context, int64_t unit, int worker) {
          (*static_cast<Function*>(context))(unit, worker);
        },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

 private:
  using UnitFn = void (*)(void* context, int64_t unit, int worker);
  void Run(int64_t count, UnitFn fn, void* context);
  void RunUnits(int worker);
  void WorkerLoop(int worker);
  static void WorkerMain(void* worker);

  // The open job. Fields are written before open_ is set and stay until active_ is back to zero.
  UnitFn fn_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  alignas(64) std::atomic<int64_t> next_{0};    // first unit not yet claimed
  alignas(64) WaitableWord epoch_;              // odd while a job is open
  alignas(64) std::atomic<int32_t> active_{0};  // workers inside the job
  std::atomic<bool> stop_{false};
  struct Worker {
    CpuStream* stream = nullptr;
    int index = 0;
    Thread thread{};
  };
  std::vector<Worker> workers_;  // the first started_ of them run
  int started_ = 0, start_error_ = 0;
};

}  // namespace dsv4
