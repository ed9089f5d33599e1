// SPDX-License-Identifier: Apache-2.0
// A device: where weights, cache and activations live and kernels run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/device/buffer.h"
#include "lib/device/device_traits.h"
#include "lib/device/stream.h"

namespace dsv4 {

// Work that was recorded once and can be launched repeatedly, on the same memory.
class Graph {
 public:
  virtual ~Graph() = default;
  // Launches the work in stream order. Device::Synchronize returns its errors.
  virtual void Launch() = 0;
};

struct MemoryPiece {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

// A copy between two places in memory of the device or of AllocateHost.
struct MemoryCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  int64_t bytes = 0;
};

enum class DeviceKind : int32_t { kCpu, kCuda };

struct DeviceOptions {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t index = 0;    // which device of its kind, as CUDA counts them; the cpu is always 0
  int32_t threads = 0;  // cpu: threads of the stream, the caller included; 0 = one per usable core
  // CUDA: where Windows manages the memory, its driver grants more than is free and moves what is
  // too much to the host's memory. Allocate refuses that.
  bool pages_memory = false;
};

// A device as it is found, whether or not it can be opened.
struct DeviceListing {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t index = 0;               // DeviceOptions::index; -1: `reason` is about the whole kind
  std::string name = {};           // the vendor's
  int32_t compute_capability = 0;  // 10 * major + minor; 0: a cpu
  bool integrated = false;         // see Device::integrated
  int64_t total_bytes = 0;         // of its memory; 0: unknown
  int64_t free_bytes = 0;          // for all processes
  std::string reason = {};         // why it cannot be opened; empty: it can
};

class Device {
 public:
  // Errors: InvalidArgument for an index or thread count out of range; for CUDA devices,
  // Unsupported, with the reason, if this build, the machine or the device cannot run it.
  static absl::StatusOr<std::unique_ptr<Device>> Open(const DeviceOptions& options);

  // The error that Open would return for these options, without opening the device.
  static absl::Status Check(const DeviceOptions& options);

  // The machine's GPUs. If there is none that CUDA shows, one entry with index -1 and the reason.
  // Sizes of integrated GPUs are the system's to tell. Creates no context on a GPU that NVIDIA's
  // management library knows.
  static std::vector<DeviceListing> ListGpus();

  virtual ~Device() = default;
  virtual std::string name() const = 0;        // the vendor's
  virtual int32_t index() const { return 0; }  // DeviceOptions::index
  // The PCI bus id, as in "0000:01:00.0", for NVIDIA's management library. Empty if there is none.
  virtual std::string bus_id() { return ""; }
  virtual Stream& stream() = 0;
  // A second stream that runs concurrently with stream(); null if there is none. After Fork, work
  // of the second stream follows all earlier work of stream(). After Join, work of stream() follows
  // all earlier work of both. Every Fork needs a Join.
  virtual Stream* side_stream() { return nullptr; }
  virtual absl::Status Fork() { return absl::OkStatus(); }
  virtual absl::Status Join() { return absl::OkStatus(); }
  virtual int threads() const = 0;
  // The traits by which kernels are chosen.
  virtual DeviceTraits traits() const { return {.name = name(), .multiprocessors = threads()}; }

  // Zero-filled memory for the device's kernels. OutOfHostMemory and OutOfDeviceMemory name
  // `purpose` and the size.
  virtual absl::StatusOr<Buffer> Allocate(int64_t bytes, absl::string_view purpose) = 0;
  // Pinned host memory, for fast transfers.
  virtual absl::StatusOr<Buffer> AllocateHost(int64_t bytes, absl::string_view purpose) = 0;
  // Bytes that Allocate can still provide; nullopt if unknown.
  virtual std::optional<int64_t> FreeBytes() { return std::nullopt; }
  // Whether Allocate returns host memory, so that nothing needs to be transferred.
  virtual bool host_memory() const = 0;
  // Whether Allocate takes from the host's memory although host_memory() is false: an integrated
  // GPU, which has no memory of its own.
  virtual bool integrated() const { return false; }
  // Whether the driver ends kernels that run for some seconds, as on a GPU that drives a display.
  virtual bool limits_kernels() const { return false; }
  // Whether blocks of a kernel on stream() may wait for each other. The answer stays true until the
  // device is closed. It is false where another open device of the process has it for the same GPU,
  // and where processes run on a GPU's multiprocessors side by side (MPS): a second such kernel
  // could hold multiprocessors that the first one's blocks need.
  virtual bool TakeWaitingBlocks() { return false; }

  // Copies in stream order. Upload: `from` may be reused on return. Download: `to` is filled on
  // return. Errors: DeviceLost.
  virtual absl::Status Upload(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual absl::Status Download(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  // Copy: also from and to memory of AllocateHost.
  virtual absl::Status Copy(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  // Copies concurrently with later work of stream(), after all work enqueued on it so far.
  // REQUIRES: the copies of the last call are done.
  virtual absl::Status StartCopies(absl::Span<const MemoryCopy> copies);
  virtual absl::StatusOr<bool> CopiesDone() { return true; }
  // Lanes copy concurrently with the work of stream().
  // - StartLane: enqueues copies, in order. They begin when stream() has done all work that it had
  //   at the lane's last FreeLane.
  // - AwaitLane: later work of stream() follows the lane's copies.
  // The host waits only if many copies are queued.
  static constexpr int kLanes = 2;
  virtual absl::Status StartLane(int lane, absl::Span<const MemoryCopy> copies);
  virtual absl::Status AwaitLane(int lane) {
    static_cast<void>(lane);
    return absl::OkStatus();
  }
  virtual absl::Status FreeLane(int lane) {
    static_cast<void>(lane);
    return absl::OkStatus();
  }
  // Time of the lanes' completed copies. Any thread.
  virtual double LaneSeconds() { return 0; }
  // Await waits for all work that stream() had at the last Mark of `number` (below kMarks). It
  // returns at once if there was none.
  static constexpr int kMarks = 4;
  virtual absl::Status Mark(int number) {
    static_cast<void>(number);
    return absl::OkStatus();
  }
  virtual absl::Status Await(int number) {
    static_cast<void>(number);
    return absl::OkStatus();
  }
  // Download and Upload of many pieces, which lie one after another in `to` and `from`.
  virtual absl::Status Gather(std::byte* to, absl::Span<const MemoryPiece> from);
  virtual absl::Status Scatter(absl::Span<const MemoryPiece> to, const std::byte* from);
  // Records what `enqueue` launches on the stream, without running it. On a device without graphs
  // it returns null and does not call `enqueue`.
  virtual absl::StatusOr<std::unique_ptr<Graph>> Record(absl::FunctionRef<absl::Status()> enqueue) {
    static_cast<void>(enqueue);
    return nullptr;
  }
  // Seconds that the kernels launched by `enqueue` run, alone on the device and without the time to
  // launch them. For benchmarks. If the device is lost, Synchronize reports it.
  virtual double SecondsOf(absl::FunctionRef<void()> enqueue);
  // Seconds that the graphs launched by `run` take on the device. Measuring lengthens the steps of
  // `run` slightly. For benchmarks.
  virtual double GraphSecondsOf(absl::FunctionRef<void()> run) {
    run();
    return 0;
  }
  // Lets this device's kernels read and write memory of `other`. Unsupported, with the reason, if
  // the devices cannot.
  virtual absl::Status ReachMemoryOf(Device& other) {
    static_cast<void>(other);
    return absl::OkStatus();
  }
  // Enter makes the device the calling thread's current one; Leave(Enter's result) restores the
  // previous one. For DeviceScope.
  virtual int Enter() { return 0; }
  virtual void Leave(int) {}
  // Whether all launched work is done. DeviceLost as Synchronize.
  virtual absl::StatusOr<bool> Idle() { return true; }
  // Waits for all launched work. DeviceLost, for good, once any of it has failed.
  virtual absl::Status Synchronize() = 0;
};

// While it lives, the calling thread may launch kernels on the device.
class DeviceScope {
 public:
  explicit DeviceScope(Device* device) : device_(device), before_(device->Enter()) {}
  ~DeviceScope() { device_->Leave(before_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device* const device_;
  const int before_;
};

inline constexpr int32_t kMaxCpuThreads = 256;

// Cores this process may run on, which a container or taskset can make fewer than the machine has;
// at most kMaxCpuThreads.
int UsableCores();

}  // namespace dsv4
