// SPDX-License-Identifier: Apache-2.0
#include "lib/device/cuda_device.h"

#include "lib/device/cuda_runtime.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"
#include "lib/device/cuda_images.h"
#include "lib/device/cuda_status.h"
#include "lib/device/driver_version.h"
#include "lib/device/watched_thread.h"

namespace dsv4 {
namespace {

constexpr int64_t kPartBytes = int64_t{4} << 20;
constexpr int64_t kStagingAlignment = 64;
constexpr auto kLongestHold = std::chrono::milliseconds(20);

thread_local int scopes_of_thread = 0;  // that are open, of all devices

cudaStream_t HandleOf(const CudaStream& stream) {
  return static_cast<cudaStream_t>(stream.handle());
}

cudaError_t RecordEvent(void* event, const CudaStream& stream) {
  const DriverCall in_driver;
  return cudaEventRecord(static_cast<cudaEvent_t>(event), HandleOf(stream));
}

cudaError_t AwaitEvent(void* event) {
  const DriverCall in_driver;
  return cudaEventSynchronize(static_cast<cudaEvent_t>(event));
}

cudaError_t AwaitStream(const CudaStream& stream) {
  const DriverCall in_driver;
  return cudaStreamSynchronize(HandleOf(stream));
}

cudaError_t StartCopy(std::byte* to, const std::byte* from, int64_t bytes, cudaMemcpyKind kind,
                      const CudaStream& stream) {
  const DriverCall in_driver;
  return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, HandleOf(stream));
}

}  // namespace

// Counts how long graphs run, between Start and Stop.
class GraphClock {
 public:
  // A failure stays CUDA's last error, which Synchronize reads.
  void Launch(cudaGraphExec_t graph, cudaStream_t stream) {
    if (begin_ == nullptr) {
      cudaGraphLaunch(graph, stream);
      return;
    }
    Collect();
    cudaEventRecord(begin_, stream);
    cudaGraphLaunch(graph, stream);
    cudaEventRecord(end_, stream);
    running_ = true;
  }

  void Start() {
    seconds_ = 0;
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
  }

  double Stop() {
    Collect();
    cudaEventDestroy(std::exchange(begin_, nullptr));
    cudaEventDestroy(std::exchange(end_, nullptr));
    return seconds_;
  }

 private:
  void Collect() {
    if (!running_) return;
    float milliseconds = 0;
    cudaEventSynchronize(end_);
    cudaEventElapsedTime(&milliseconds, begin_, end_);
    seconds_ += milliseconds * 1e-3;
    running_ = false;
  }

  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  bool running_ = false;
  double seconds_ = 0;
};

namespace {

class CudaGraph final : public Graph {
 public:
  CudaGraph(cudaGraphExec_t graph, cudaStream_t stream, std::shared_ptr<GraphClock> clock)
      : graph_(graph), stream_(stream), clock_(std::move(clock)) {}
  ~CudaGraph() override {
    const DriverCall in_driver;
    cudaGraphExecDestroy(graph_);
  }
  void Launch() override {
    const DriverCall in_driver;
    clock_->Launch(graph_, stream_);
  }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
  std::shared_ptr<GraphClock> clock_;
};

void FreeDevice(std::byte* data, int64_t) {
  const DriverCall in_driver;
  cudaFree(data);
}
void FreePinned(std::byte* data, int64_t) {
  const DriverCall in_driver;
  cudaFreeHost(data);
}

}  // namespace

absl::Status CudaDevice::Check(int32_t index) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0) {
    cudaGetLastError();  // not a fault of a later call
    std::string reason = counted == cudaSuccess ? "there is none" : cudaGetErrorString(counted);
    if (counted == cudaErrorInsufficientDriver) {
      int supported = 0;
      if (cudaDriverGetVersion(&supported) != cudaSuccess) cudaGetLastError();
      absl::StrAppend(&reason, ": ", DriverTooOld(LoadedDriver(), supported, CUDART_VERSION));
    }
    return Unsupported("no usable CUDA device: ", reason);
  }
  if (index < 0 || index >= count) {
    return InvalidArgument("device cuda:", index, " is not in 0..", count - 1);
  }
  cudaDeviceProp properties;
  DSV4_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, index),
                                  absl::StrCat("cuda:", index), "asking for its properties"));
  const int capability = properties.major * 10 + properties.minor;
  if (!HasImageFor(capability)) {
    return Unsupported("cuda:", index, " (", properties.name, ") has compute capability ",
                       properties.major, ".", properties.minor, "; this build has kernels for ",
                       kCudaImages);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Device>> CudaDevice::Open(int32_t index, bool pages_memory) {
  cudaDeviceProp properties;
  DSV4_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, index),
                                  absl::StrCat("cuda:", index), "asking for its properties"));
  const int32_t capability = properties.major * 10 + properties.minor;
  std::unique_ptr<CudaDevice> device(
      new CudaDevice(index, properties.integrated != 0, pages_memory,
                     {.name = properties.name,
                      .compute_capability = capability,
                      .multiprocessors = properties.multiProcessorCount,
                      .features = FeaturesOf(capability),
                      .shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin)}));
  DSV4_RETURN_IF_ERROR(device->OpenStream());
  return device;
}

absl::Status CudaDevice::OpenStream() {
  const DeviceScope scope(this);
  int limited = 0;
  DSV4_RETURN_IF_ERROR(
      CheckCall(cudaDeviceGetAttribute(&limited, cudaDevAttrKernelExecTimeout, index_),
                "asking for its run-time limit"));
  limits_kernels_ = limited != 0;
  for (std::unique_ptr<CudaStream>* made : {&stream_, &side_stream_, &copy_stream_}) {
    cudaStream_t stream = nullptr;
    DSV4_RETURN_IF_ERROR(
        CheckCall(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream"));
    *made = std::make_unique<CudaStream>(stream);
  }
  DSV4_ASSIGN_OR_RETURN(forked_, NewEvent());
  DSV4_ASSIGN_OR_RETURN(joined_, NewEvent());
  DSV4_ASSIGN_OR_RETURN(copying_, NewEvent());
  DSV4_ASSIGN_OR_RETURN(copied_, NewEvent());
  for (Lane& lane : lanes_) {
    DSV4_ASSIGN_OR_RETURN(lane.freed, NewEvent());
  }
  for (LaneCopies& copies : lane_copies_) {
    DSV4_ASSIGN_OR_RETURN(copies.begun, NewEvent(true));
    DSV4_ASSIGN_OR_RETURN(copies.arrived, NewEvent(true));
  }
  for (void*& mark : marks_) {
    DSV4_ASSIGN_OR_RETURN(mark, NewEvent());
  }
  graph_clock_ = std::make_shared<GraphClock>();
  MutexLock lock(&mutex_);
  DSV4_ASSIGN_OR_RETURN(staging_, AllocateHost(kPartBytes * static_cast<int64_t>(parts_.size()),
                                               "staging of transfers"));
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts_[i].data = staging_.data() + kPartBytes * static_cast<int64_t>(i);
    DSV4_ASSIGN_OR_RETURN(parts_[i].event, NewEvent());
  }
  return absl::OkStatus();
}

absl::StatusOr<void*> CudaDevice::NewEvent(bool timed) {
  cudaEvent_t event = nullptr;
  DSV4_RETURN_IF_ERROR(
      CheckCall(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
                "creating an event"));
  return event;
}

namespace {

// A bit for each GPU whose waiting blocks an open device has; none for the GPUs from 64 on.
std::atomic<uint64_t> waiting_blocks{0};
uint64_t GpuBit(int32_t index) { return index < 64 ? uint64_t{1} << index : 0; }

}  // namespace

bool CudaDevice::TakeWaitingBlocks() {
  if (has_waiting_blocks_) return true;
  int side_by_side = 0;
  if (cudaDeviceGetAttribute(&side_by_side, cudaDevAttrMpsEnabled, index_) != cudaSuccess) {
    cudaGetLastError();  // a driver that does not know the question
    return false;
  }
  const uint64_t bit = GpuBit(index_);
  if (side_by_side != 0 || bit == 0 || (waiting_blocks.fetch_or(bit) & bit) != 0) return false;
  has_waiting_blocks_ = true;
  return true;
}

CudaDevice::~CudaDevice() {
  const DriverCall in_driver;
  const DeviceScope scope(this);
  for (const std::unique_ptr<CudaStream>* stream : {&stream_, &side_stream_, &copy_stream_}) {
    if (*stream == nullptr) continue;
    cudaStreamSynchronize(static_cast<cudaStream_t>((*stream)->handle()));
    cudaStreamDestroy(static_cast<cudaStream_t>((*stream)->handle()));
  }
  for (void* event : {forked_, joined_, copying_, copied_}) {
    if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
  }
  for (const Lane& lane : lanes_) {
    if (lane.freed != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(lane.freed));
  }
  for (const LaneCopies& copies : lane_copies_) {
    for (void* event : {copies.begun, copies.arrived}) {
      if (event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(event));
    }
  }
  for (void* mark : marks_) {
    if (mark != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(mark));
  }
  for (const StagingPart& part : parts_) {
    if (part.event != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(part.event));
  }
  if (has_waiting_blocks_) waiting_blocks.fetch_and(~GpuBit(index_));
}

absl::Status CudaDevice::RecordOn(const CudaStream& stream, void* event) {
  MutexLock lock(&mutex_);
  const DeviceScope scope(this);
  return CheckCall(RecordEvent(event, stream), "recording an event");
}

absl::Status CudaDevice::WaitOn(const CudaStream& stream, void* event) {
  MutexLock lock(&mutex_);
  const DeviceScope scope(this);
  const DriverCall in_driver;
  return CheckCall(cudaStreamWaitEvent(HandleOf(stream), static_cast<cudaEvent_t>(event), 0),
                   "ordering streams");
}

absl::Status CudaDevice::Order(const CudaStream& from, void* event, const CudaStream& to) {
  DSV4_RETURN_IF_ERROR(RecordOn(from, event));
  return WaitOn(to, event);
}

absl::Status CudaDevice::StartCopies(absl::Span<const MemoryCopy> copies) {
  DSV4_RETURN_IF_ERROR(RecordOn(*stream_, copying_));
  return CopyBetween(copying_, nullptr, copies, copied_);
}

absl::Status CudaDevice::StartLane(int lane, absl::Span<const MemoryCopy> copies) {
  Lane& own = lanes_[static_cast<size_t>(lane)];
  own.last = next_copies_;
  next_copies_ = (next_copies_ + 1) % lane_copies_.size();
  LaneCopies& run = lane_copies_[own.last];
  {
    const DeviceScope scope(this);
    DSV4_RETURN_IF_ERROR(CheckCall(AwaitEvent(run.arrived), "waiting for a copy"));
  }
  LaneSeconds();
  DSV4_RETURN_IF_ERROR(CopyBetween(own.freed, run.begun, copies, run.arrived));
  MutexLock lock(&lane_mutex_);
  run.counts = true;
  return absl::OkStatus();
}

absl::Status CudaDevice::AwaitLane(int lane) {
  const Lane& own = lanes_[static_cast<size_t>(lane)];
  return WaitOn(*stream_, lane_copies_[own.last].arrived);
}

double CudaDevice::LaneSeconds() {
  MutexLock lock(&lane_mutex_);
  const DeviceScope scope(this);
  for (LaneCopies& run : lane_copies_) {
    if (!run.counts) continue;
    const absl::StatusOr<bool> done = IsDone(run.arrived);
    float milliseconds = 0;
    if (!done.ok() || !*done ||
        cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(run.begun),
                             static_cast<cudaEvent_t>(run.arrived)) != cudaSuccess) {
      continue;
    }
    lane_seconds_ += milliseconds * 1e-3;
    run.counts = false;
  }
  return lane_seconds_;
}

absl::Status CudaDevice::FreeLane(int lane) {
  return RecordOn(*stream_, lanes_[static_cast<size_t>(lane)].freed);
}

// On the copies' stream, behind the event `after`; `begun` is recorded before them, `done` behind.
absl::Status CudaDevice::CopyBetween(void* after, void* begun, absl::Span<const MemoryCopy> copies,
                                     void* done) {
  DSV4_RETURN_IF_ERROR(WaitOn(*copy_stream_, after));
  if (begun != nullptr) DSV4_RETURN_IF_ERROR(RecordOn(*copy_stream_, begun));
  {
    MutexLock lock(&mutex_);
    const DeviceScope scope(this);
    for (const MemoryCopy& copy : copies) {
      DSV4_RETURN_IF_ERROR(CheckCall(
          StartCopy(copy.to, copy.from, copy.bytes, cudaMemcpyDefault, *copy_stream_), "copying"));
    }
  }
  return RecordOn(*copy_stream_, done);
}

absl::Status CudaDevice::Mark(int number) {
  return RecordOn(*stream_, marks_[static_cast<size_t>(number)]);
}

// Waits without the lock, so that sessions copy blocks meanwhile.
absl::Status CudaDevice::Await(int number) {
  const DeviceScope scope(this);
  return CheckCall(AwaitEvent(marks_[static_cast<size_t>(number)]), "waiting for the device");
}

absl::StatusOr<bool> CudaDevice::IsDone(void* event) {
  MutexLock lock(&mutex_);
  const DeviceScope scope(this);
  const DriverCall in_driver;
  return Came(cudaEventQuery(static_cast<cudaEvent_t>(event)));
}

// `result`: of asking for something that may not have come.
absl::StatusOr<bool> CudaDevice::Came(int result) {
  if (result == cudaErrorNotReady) {
    if (cudaPeekAtLastError() == cudaErrorNotReady) cudaGetLastError();  // no failure
    return false;
  }
  DSV4_RETURN_IF_ERROR(CheckCall(result, "waiting for the device"));
  return true;
}

absl::Status CudaDevice::Fork() { return Order(*stream_, forked_, *side_stream_); }
absl::Status CudaDevice::Join() { return Order(*side_stream_, joined_, *stream_); }

absl::Status CudaDevice::CheckCall(int result, absl::string_view what) {
  MutexLock lock(&lost_mutex_);
  if (!lost_.ok()) return lost_;
  lost_ = CudaStatus(static_cast<cudaError_t>(result), absl::StrCat("cuda:", index_), what);
  return lost_;
}

// Graphs lie in memory of the device that CUDA takes for them.
absl::Status CudaDevice::CheckGraph(int result, absl::string_view what) {
  if (result != cudaErrorMemoryAllocation) return CheckCall(result, absl::StrCat(what, " a graph"));
  cudaGetLastError();  // not sticky
  return OutOfDeviceMemory("cuda:", index_, ": no memory is left for ", what, " a step's graph");
}

absl::StatusOr<std::unique_ptr<Graph>> CudaDevice::Record(
    absl::FunctionRef<absl::Status()> enqueue) {
  const DeviceScope scope(this);
  const auto stream = static_cast<cudaStream_t>(stream_->handle());
  DSV4_RETURN_IF_ERROR(Synchronize());
  DSV4_RETURN_IF_ERROR(
      CheckCall(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording"));
  const absl::Status enqueued = enqueue();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  cudaGraphExec_t executable = nullptr;
  absl::Status status = enqueued;
  if (status.ok()) status = CheckCall(ended, "recording");
  if (status.ok()) status = CheckGraph(cudaGraphInstantiate(&executable, graph, 0), "making");
  if (graph != nullptr) cudaGraphDestroy(graph);
  DSV4_RETURN_IF_ERROR(status);
  std::unique_ptr<Graph> recorded = std::make_unique<CudaGraph>(executable, stream, graph_clock_);
  // Else its first launch would send it.
  DSV4_RETURN_IF_ERROR(CheckGraph(cudaGraphUpload(executable, stream), "sending"));
  return recorded;
}

// The stream is held until all is enqueued, so that the device does not wait for the host between
// the two events; no longer than kLongestHold, as a kernel's first launch may wait for the device.
double CudaDevice::SecondsOf(absl::FunctionRef<void()> enqueue) {
  const DeviceScope scope(this);
  const auto stream = static_cast<cudaStream_t>(stream_->handle());
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  std::atomic<bool> enqueued = false;
  cudaLaunchHostFunc(
      stream,
      [](void* flag) {
        const auto limit = std::chrono::steady_clock::now() + kLongestHold;
        while (!static_cast<std::atomic<bool>*>(flag)->load(std::memory_order_relaxed) &&
               std::chrono::steady_clock::now() < limit) {
        }
      },
      &enqueued);
  cudaEventRecord(begin, stream);
  enqueue();
  cudaEventRecord(end, stream);
  enqueued.store(true, std::memory_order_relaxed);
  cudaStreamSynchronize(stream);
  float milliseconds = 0;
  cudaEventElapsedTime(&milliseconds, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return milliseconds * 1e-3;
}

double CudaDevice::GraphSecondsOf(absl::FunctionRef<void()> run) {
  const DeviceScope scope(this);
  graph_clock_->Start();
  run();
  return graph_clock_->Stop();
}

// A launch that fails says so as CUDA's last error of the thread, which a host's own calls may have
// set before: it is cleared when the thread enters, and read when it leaves. Other failures show in
// the calls that follow.
int CudaDevice::Enter() {
  const DriverCall in_driver;
  if (scopes_of_thread++ == 0) cudaGetLastError();
  int before = index_;
  cudaGetDevice(&before);
  if (before != index_) cudaSetDevice(index_);
  return before;
}

void CudaDevice::Leave(int before) {
  const DriverCall in_driver;
  if (--scopes_of_thread == 0) {
    int none = cudaSuccess;
    launch_error_.compare_exchange_strong(none, cudaGetLastError());
  }
  if (before != index_) cudaSetDevice(before);
}

absl::StatusOr<Buffer> CudaDevice::Allocate(int64_t bytes, absl::string_view purpose) {
  if (bytes <= 0) return Buffer();
  if (const std::optional<int64_t> free = pages_memory_ ? FreeBytes() : std::nullopt;
      free && bytes > *free) {
    return OutOfDeviceMemory("cuda:", index_, ": ", *free, " bytes are free, less than the ", bytes,
                             " for the ", purpose,
                             ", which Windows would move to the host's memory");
  }
  MutexLock lock(&mutex_);
  const DeviceScope scope(this);
  void* data = nullptr;
  const cudaError_t result =
      InDriver([&] { return cudaMalloc(&data, static_cast<size_t>(bytes)); });
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky
    return OutOfDeviceMemory("cuda:", index_, ": cannot allocate ", bytes, " bytes for the ",
                             purpose);
  }
  if (result == cudaErrorMapBufferObjectFailed) {
    cudaGetLastError();  // not sticky
    return OutOfDeviceMemory("cuda:", index_, ": cannot make ", bytes, " bytes for the ", purpose,
                             " accessible to the other GPUs: their window to its memory (BAR1) is "
                             "full; turn on Resizable BAR in the BIOS");
  }
  DSV4_RETURN_IF_ERROR(CheckCall(result, "allocating memory"));
  Buffer buffer(static_cast<std::byte*>(data), bytes, FreeDevice);
  const DriverCall in_driver;
  DSV4_RETURN_IF_ERROR(CheckCall(
      cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), HandleOf(*stream_)), "clearing memory"));
  return buffer;
}

std::string CudaDevice::bus_id() {
  char id[32] = {};
  if (cudaDeviceGetPCIBusId(id, sizeof id, index_) != cudaSuccess) cudaGetLastError();
  return id;
}

// A GPU that shares the host's memory can also take the memory of the page cache, which CUDA does
// not count as free.
std::optional<int64_t> CudaDevice::FreeBytes() {
  if (integrated_) return std::nullopt;
  const DeviceScope scope(this);
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return std::nullopt;
  return static_cast<int64_t>(free);
}

absl::StatusOr<Buffer> CudaDevice::AllocateHost(int64_t bytes, absl::string_view purpose) {
  if (bytes <= 0) return Buffer();
  const DeviceScope scope(this);
  void* data = nullptr;
  const cudaError_t result = InDriver(
      [&] { return cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault); });
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return OutOfHostMemory("cuda:", index_, ": cannot pin ", bytes,
                           " bytes of host memory for the ", purpose);
  }
  DSV4_RETURN_IF_ERROR(
      CudaStatus(result, absl::StrCat("cuda:", index_), "allocating pinned memory"));
  return Buffer(static_cast<std::byte*>(data), bytes, FreePinned);
}

absl::StatusOr<std::byte*> CudaDevice::Stage(int64_t bytes) {
  if (part_used_ + bytes > kPartBytes) {
    part_ = (part_ + 1) % parts_.size();
    part_used_ = 0;
    DSV4_RETURN_IF_ERROR(CheckCall(AwaitEvent(parts_[part_].event), "waiting for a transfer"));
  }
  return parts_[part_].data +
         std::exchange(part_used_, RoundUp(part_used_ + bytes, kStagingAlignment));
}

absl::Status CudaDevice::MarkPart() {
  return CheckCall(RecordEvent(parts_[part_].event, *stream_), "recording an event");
}

absl::Status CudaDevice::Upload(std::byte* to, const std::byte* from, int64_t bytes) {
  MutexLock lock(&mutex_);
  const DeviceScope scope(this);
  for (int64_t begin = 0; begin < bytes; begin += kPartBytes) {
    const int64_t part = std::min(kPartBytes, bytes - begin);
    DSV4_ASSIGN_OR_RETURN(std::byte* const staged, Stage(part));
    std::memcpy(staged, from + begin, static_cast<size_t>(part));
    DSV4_RETURN_IF_ERROR(
        CheckCall(StartCopy(to + begin, staged, part, cudaMemcpyHostToDevice, *stream_),
                  "copying to the device"));
    DSV4_RETURN_IF_ERROR(MarkPart());
  }
  return CheckCall(cudaSuccess, "copying to the device");
}

// As many pieces as a part takes wait for the device once. The lock is released in between, so
// that steps run while a long session is saved or loaded.
absl::Status CudaDevice::Gather(std::byte* to, absl::Span<const MemoryPiece> from) {
  const DeviceScope scope(this);
  for (size_t next = 0; next < from.size();) {
    if (from[next].bytes > kPartBytes) {
      DSV4_RETURN_IF_ERROR(Download(to, from[next].data, from[next].bytes));
      to += from[next++].bytes;
      continue;
    }
    MutexLock lock(&mutex_);
    DSV4_ASSIGN_OR_RETURN(std::byte* const staged, Stage(kPartBytes));
    int64_t used = 0;
    for (; next < from.size() && used + from[next].bytes <= kPartBytes; ++next) {
      DSV4_RETURN_IF_ERROR(CheckCall(StartCopy(staged + used, from[next].data, from[next].bytes,
                                               cudaMemcpyDeviceToHost, *stream_),
                                     "copying from the device"));
      used += from[next].bytes;
    }
    DSV4_RETURN_IF_ERROR(CheckCall(AwaitStream(*stream_), "waiting for the device"));
    std::memcpy(to, staged, static_cast<size_t>(used));
    to += used;
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::Scatter(absl::Span<const MemoryPiece> to, const std::byte* from) {
  const DeviceScope scope(this);
  for (size_t next = 0; next < to.size();) {
    if (to[next].bytes > kPartBytes) {
      DSV4_RETURN_IF_ERROR(Upload(to[next].data, from, to[next].bytes));
      from += to[next++].bytes;
      continue;
    }
    MutexLock lock(&mutex_);
    DSV4_ASSIGN_OR_RETURN(std::byte* const staged, Stage(kPartBytes));
    int64_t used = 0;
    for (; next < to.size() && used + to[next].bytes <= kPartBytes; ++next) {
      std::memcpy(staged + used, from + used, static_cast<size_t>(to[next].bytes));
      DSV4_RETURN_IF_ERROR(CheckCall(
          StartCopy(to[next].data, staged + used, to[next].bytes, cudaMemcpyHostToDevice, *stream_),
          "copying to the device"));
      used += to[next].bytes;
    }
    DSV4_RETURN_IF_ERROR(MarkPart());
    from += used;
  }
  return absl::OkStatus();
}

absl::Status CudaDevice::Download(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes <= 0) return absl::OkStatus();
  MutexLock lock(&mutex_);
  const DeviceScope scope(this);
  DSV4_RETURN_IF_ERROR(CheckCall(StartCopy(to, from, bytes, cudaMemcpyDeviceToHost, *stream_),
                                 "copying from the device"));
  return CheckCall(AwaitStream(*stream_), "waiting for the device");
}

absl::Status CudaDevice::Copy(std::byte* to, const std::byte* from, int64_t bytes) {
  if (bytes <= 0) return absl::OkStatus();
  MutexLock lock(&mutex_);
  const DeviceScope scope(this);
  return CheckCall(StartCopy(to, from, bytes, cudaMemcpyDefault, *stream_), "copying");
}

// A refusal is no failure of either device.
absl::Status CudaDevice::ReachMemoryOf(Device& other) {
  const DeviceScope scope(this);
  int reaches = 0;
  cudaError_t result = cudaDeviceCanAccessPeer(&reaches, index_, other.index());
  if (result == cudaSuccess && reaches != 0) {
    result = cudaDeviceEnablePeerAccess(other.index(), 0);
    if (result == cudaSuccess) return absl::OkStatus();
  }
  if (result != cudaSuccess) cudaGetLastError();  // not a fault of a later call
  if (result == cudaErrorPeerAccessAlreadyEnabled) return absl::OkStatus();
  return Unsupported(
      "cuda:", index_, " cannot access the memory of cuda:", other.index(),
      result == cudaSuccess ? "" : absl::StrCat(" (", cudaGetErrorName(result), ")"));
}

absl::StatusOr<bool> CudaDevice::Idle() {
  MutexLock lock(&mutex_);
  const DeviceScope scope(this);
  const DriverCall in_driver;
  return Came(cudaStreamQuery(HandleOf(*stream_)));
}

// Waits without the lock, as Await does.
absl::Status CudaDevice::Synchronize() {
  const DeviceScope scope(this);
  const int before = launch_error_.load();
  DSV4_RETURN_IF_ERROR(
      CheckCall(before != cudaSuccess ? before : cudaGetLastError(), "launching a kernel"));
  return CheckCall(AwaitStream(*stream_), "waiting for the device");
}

}  // namespace dsv4
