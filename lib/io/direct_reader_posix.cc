// SPDX-License-Identifier: Apache-2.0
// The kernel's own interface to io_uring (io_uring(7)): a ring of requests and one of results, both
// shared with it. Requests here are few and large, so that one call submits them and waits.
#include "lib/io/direct_reader.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/io/system_error.h"

namespace dsv4 {
namespace {

constexpr unsigned kRequests = 64;  // under way at once
constexpr std::chrono::milliseconds kDrainPause{1};
constexpr int64_t kRequestBytes = int64_t{1} << 30;  // of one, less than the kernel's limit

// Whether a read that ended with this errno is to be made again.
bool Again(int error) { return error == EINTR || error == EAGAIN; }

}  // namespace

class DirectReader::Ring {
 public:
  // Null where the kernel has no ring to give, or none that reads.
  static std::unique_ptr<Ring> Open() {
    std::unique_ptr<Ring> ring(new Ring);
    io_uring_params params{};
    ring->fd_ = static_cast<int>(syscall(__NR_io_uring_setup, kRequests, &params));
    if (ring->fd_ < 0 || (params.features & IORING_FEAT_SINGLE_MMAP) == 0 || !ring->Reads()) {
      return nullptr;
    }
    const size_t bytes =
        std::max<size_t>(params.sq_off.array + params.sq_entries * sizeof(uint32_t),
                         params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    std::byte* const shared = ring->Map(bytes, IORING_OFF_SQ_RING);
    std::byte* const requests =
        ring->Map(params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
    if (shared == nullptr || requests == nullptr) return nullptr;
    const auto word = [&](uint32_t offset) { return reinterpret_cast<uint32_t*>(shared + offset); };
    ring->requests_ = reinterpret_cast<io_uring_sqe*>(requests);
    ring->request_tail_ = word(params.sq_off.tail);
    ring->request_mask_ = *word(params.sq_off.ring_mask);
    ring->order_ = word(params.sq_off.array);
    ring->results_ = reinterpret_cast<io_uring_cqe*>(shared + params.cq_off.cqes);
    ring->result_head_ = word(params.cq_off.head);
    ring->result_tail_ = word(params.cq_off.tail);
    ring->result_mask_ = *word(params.cq_off.ring_mask);
    return ring;
  }

  ~Ring() {
    for (const auto& [memory, bytes] : maps_) munmap(memory, bytes);
    if (fd_ >= 0) close(fd_);
  }

  // REQUIRES: fewer than kRequests are under way.
  void Add(int fd, int64_t offset, int64_t bytes, std::byte* to, uint64_t tag) {
    const uint32_t tail = *request_tail_, at = tail & request_mask_;
    io_uring_sqe& request = requests_[at];
    request = {};
    request.opcode = IORING_OP_READ;
    request.fd = fd;
    request.off = static_cast<uint64_t>(offset);
    request.addr = reinterpret_cast<uint64_t>(to);
    request.len = static_cast<uint32_t>(bytes);
    request.user_data = tag;
    order_[at] = at;
    std::atomic_ref(*request_tail_).store(tail + 1, std::memory_order_release);
    ++added_;
  }

  // Submits the added reads and waits for a result. Returns 0 or an errno. After an error, the
  // reads that the kernel accepted are still under way.
  int Wait() {
    for (;;) {
      const long taken = syscall(__NR_io_uring_enter, fd_, added_, Has() ? 0u : 1u,
                                 IORING_ENTER_GETEVENTS, nullptr, 0);
      if (taken < 0 && errno != EINTR && errno != EAGAIN && errno != EBUSY) return errno;
      if (taken > 0) added_ -= static_cast<unsigned>(taken);
      if (Has()) return 0;
    }
  }

  // Requests that the kernel has not taken.
  unsigned added() const { return added_; }

  // The next result, if there is one.
  bool Take(uint64_t* tag, int32_t* result) {
    if (!Has()) return false;
    const uint32_t head = *result_head_;
    *tag = results_[head & result_mask_].user_data;
    *result = results_[head & result_mask_].res;
    std::atomic_ref(*result_head_).store(head + 1, std::memory_order_release);
    return true;
  }

 private:
  Ring() = default;

  // Whether it knows IORING_OP_READ.
  bool Reads() const {
    constexpr unsigned kOps = 64;
    alignas(io_uring_probe)
        std::byte memory[sizeof(io_uring_probe) + kOps * sizeof(io_uring_probe_op)] = {};
    if (syscall(__NR_io_uring_register, fd_, IORING_REGISTER_PROBE, memory, kOps) < 0) return false;
    const auto* probe = reinterpret_cast<const io_uring_probe*>(memory);
    const auto* ops = reinterpret_cast<const io_uring_probe_op*>(memory + sizeof(io_uring_probe));
    return probe->last_op >= IORING_OP_READ &&
           (ops[IORING_OP_READ].flags & IO_URING_OP_SUPPORTED) != 0;
  }

  std::byte* Map(size_t bytes, off_t offset) {
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset);
    if (memory == MAP_FAILED) return nullptr;
    maps_.emplace_back(memory, bytes);
    return static_cast<std::byte*>(memory);
  }

  bool Has() const {
    return *result_head_ != std::atomic_ref(*result_tail_).load(std::memory_order_acquire);
  }

  int fd_ = -1;
  std::vector<std::pair<void*, size_t>> maps_;
  io_uring_sqe* requests_ = nullptr;
  io_uring_cqe* results_ = nullptr;
  uint32_t *request_tail_ = nullptr, *order_ = nullptr;
  uint32_t *result_head_ = nullptr, *result_tail_ = nullptr;
  uint32_t request_mask_ = 0, result_mask_ = 0;
  unsigned added_ = 0;
};

absl::StatusOr<std::unique_ptr<DirectReader>> DirectReader::Open(
    const std::vector<std::string>& paths, const Options& options) {
  std::unique_ptr<DirectReader> reader(new DirectReader);
  reader->plain_ = options.plain;
  for (const std::string& path : paths) {
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
    if (fd < 0 && errno == EINVAL) fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return SystemError(path, "open", errno);
    reader->files_.push_back({path, fd});
    struct stat info;
    if (fstat(fd, &info) != 0) return SystemError(path, "read the size", errno);
    if (!S_ISREG(info.st_mode)) return InvalidArgument(path, ": not a regular file");
  }
  if (!options.plain) reader->ring_ = Ring::Open();
  return reader;
}

DirectReader::~DirectReader() {
  for (const File& file : files_) {
    if (file.handle >= 0) close(static_cast<int>(file.handle));
  }
}

absl::Status DirectReader::ReadPlainly() {
  for (Rest& rest : rests_) {
    const int fd = static_cast<int>(files_[static_cast<size_t>(rest.piece->file)].handle);
    while (rest.begin < rest.end) {
      const auto bytes = static_cast<size_t>(std::min(rest.end - rest.begin, kRequestBytes));
      const ssize_t got = pread(fd, rest.to, bytes, rest.begin);
      if (got < 0 && Again(errno)) continue;
      DSV4_RETURN_IF_ERROR(Advance(got < 0 ? -errno : got, &rest));
    }
  }
  return absl::OkStatus();
}

unsigned DirectReader::TakeResults(absl::Status* status) {
  unsigned taken = 0;
  uint64_t index = 0;
  int32_t result = 0;
  for (; ring_->Take(&index, &result); ++taken) {
    Rest& rest = rests_[index];
    const absl::Status advanced = Again(-result) ? absl::OkStatus() : Advance(result, &rest);
    if (status->ok()) *status = advanced;
    if (rest.begin < rest.end) ready_.push_back(index);
  }
  return taken;
}

// The first failure ends it, once nothing is under way that writes to the pieces' memory.
absl::Status DirectReader::ReadByRing() {
  absl::Status status;
  ready_.resize(rests_.size());
  std::iota(ready_.rbegin(), ready_.rend(), size_t{0});
  unsigned under_way = 0;
  int error = 0;
  while (error == 0) {
    for (; status.ok() && !ready_.empty() && under_way < kRequests; ++under_way) {
      const Rest& rest = rests_[ready_.back()];
      ring_->Add(static_cast<int>(files_[static_cast<size_t>(rest.piece->file)].handle), rest.begin,
                 std::min(rest.end - rest.begin, kRequestBytes), rest.to, ready_.back());
      ready_.pop_back();
    }
    if (under_way == 0) return status;
    error = ring_->Wait();
    under_way -= TakeResults(&status);
  }
  // The kernel has some of the requests, and writes their results without being asked.
  for (under_way -= ring_->added(); under_way > 0; under_way -= TakeResults(&status)) {
    std::this_thread::sleep_for(kDrainPause);
  }
  ring_.reset();
  Log(LogLevel::kWarning, "io_uring failed: ", SystemReason(error), "; files are read by pread");
  return status.ok() ? ReadPlainly() : status;
}

absl::Status DirectReader::ReadRests() { return ring_ != nullptr ? ReadByRing() : ReadPlainly(); }

}  // namespace dsv4
