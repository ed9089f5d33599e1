// SPDX-License-Identifier: Apache-2.0
// Linked with --wrap=syscall: a fake kernel stands for io_uring in one test.
#include "lib/io/direct_reader.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstring>
#include <filesystem>
#include <thread>

#include "lib/base/error.h"
#include "lib/io/system_memory.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace {

// A kernel whose ring takes requests once, after which io_uring_enter fails: it reads for them a
// moment later, on a thread of its own.
class FakeRing {
 public:
  ~FakeRing() {
    if (reads_.joinable()) reads_.join();
  }
  long Setup(io_uring_params* params) {
    params->sq_entries = params->cq_entries = kEntries;
    params->features = IORING_FEAT_SINGLE_MMAP;
    params->sq_off.head = 0;
    params->sq_off.tail = 4;
    params->sq_off.ring_mask = kRequestMask;
    params->sq_off.array = 64;
    params->cq_off.head = 12;
    params->cq_off.tail = kResultTail;
    params->cq_off.ring_mask = kResultMask;
    params->cq_off.cqes = kResults;
    const int file = memfd_create("ring", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, IORING_OFF_SQES + kRingBytes) != 0) return -1;
    ring_ = Map(file, IORING_OFF_SQ_RING);
    requests_ = reinterpret_cast<io_uring_sqe*>(Map(file, IORING_OFF_SQES));
    *Word(kRequestMask) = *Word(kResultMask) = kEntries - 1;
    return file;
  }
  long Enter(unsigned given) {
    if (reads_.joinable() || given == 0) {
      errno = ENOMEM;
      return -1;
    }
    const unsigned taken = given / 2;
    reads_ = std::thread([this, taken] {
      for (unsigned i = 0; i < taken; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const io_uring_sqe& request = requests_[i];
        const ssize_t bytes = pread(request.fd, reinterpret_cast<void*>(request.addr), request.len,
                                    static_cast<off_t>(request.off));
        auto* const result = reinterpret_cast<io_uring_cqe*>(ring_ + kResults) + i;
        result->user_data = request.user_data;
        result->res = static_cast<int32_t>(bytes);
        ++reads;
        std::atomic_ref(*Word(kResultTail)).store(i + 1, std::memory_order_release);
      }
    });
    return taken;
  }

  std::atomic<unsigned> reads = 0;

 private:
  static constexpr unsigned kEntries = 64;
  // Where these lie in the shared memory.
  static constexpr uint32_t kRequestMask = 8, kResultTail = 16, kResultMask = 20, kResults = 1024;
  static constexpr size_t kRingBytes = 8192;
  static std::byte* Map(int file, off_t offset) {
    return static_cast<std::byte*>(
        mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset));
  }
  uint32_t* Word(size_t offset) const { return reinterpret_cast<uint32_t*>(ring_ + offset); }

  std::byte* ring_ = nullptr;
  io_uring_sqe* requests_ = nullptr;
  std::thread reads_;
};

FakeRing* fake_ring = nullptr;

}  // namespace

extern "C" {
long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  // As many as the reader passes with that number.
  const int count = number == __NR_io_uring_setup ? 2 : number == __NR_io_uring_register ? 4 : 6;
  long arguments[6] = {};
  va_list list;
  va_start(list, number);
  for (int i = 0; i < count; ++i) arguments[i] = va_arg(list, long);
  va_end(list);
  if (fake_ring != nullptr && number == __NR_io_uring_setup) {
    return fake_ring->Setup(reinterpret_cast<io_uring_params*>(arguments[1]));
  }
  if (fake_ring != nullptr && number == __NR_io_uring_register) {
    auto* const probe = reinterpret_cast<io_uring_probe*>(arguments[2]);
    probe->last_op = IORING_OP_READ;
    probe->ops[IORING_OP_READ].flags = IO_URING_OP_SUPPORTED;
    return 0;
  }
  if (fake_ring != nullptr && number == __NR_io_uring_enter) {
    return fake_ring->Enter(static_cast<unsigned>(arguments[1]));
  }
  return __real_syscall(number, arguments[0], arguments[1], arguments[2], arguments[3],
                        arguments[4], arguments[5]);
}
}

namespace dsv4 {
namespace {

using test::TempFolder;

std::string Pattern(size_t bytes) {
  std::string text(bytes, '\0');
  uint32_t state = 7;
  for (char& c : text) c = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
  return text;
}

// Memory for pieces, at page boundaries.
class Room {
 public:
  explicit Room(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory_ != MAP_FAILED);
  }
  ~Room() { munmap(memory_, bytes_); }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  size_t bytes_;
  void* memory_;
};

TEST_CASE("pieces of files are read wherever they begin and end, by a ring and without") {
  const TempFolder folder;
  const std::string first = Pattern(300'001), second = Pattern(5);
  const std::vector<std::string> paths = {folder.Write("first", first),
                                          folder.Write("second", second)};
  for (const bool plain : {false, true}) {
    INFO((plain ? "plain" : "by a ring"));
    const auto reader = DirectReader::Open(paths, {.plain = plain});
    REQUIRE_OK(reader);
    if (plain) REQUIRE(!(*reader)->uses_ring());
    std::vector<FilePiece> pieces;
    for (const auto& [offset, bytes] :
         {std::pair<int64_t, int64_t>{0, 1}, {4095, 2}, {8192, 4096}, {1, 300'000}, {299'999, 2}}) {
      pieces.push_back({.file = 0, .offset = offset, .bytes = bytes});
    }
    // More than are under way at once.
    for (int64_t i = 0; i < 150; ++i)
      pieces.push_back({.file = 0, .offset = 997 * i, .bytes = 999});
    pieces.push_back({.file = 1, .offset = 3, .bytes = 2});
    pieces.push_back({.file = 1, .offset = 0, .bytes = 0});
    int64_t room = 0;
    for (const FilePiece& piece : pieces) room += DirectReader::RoomFor(piece.bytes);
    const Room memory(room);
    std::byte* at = memory.data();
    for (FilePiece& piece : pieces) {
      piece.memory = at;
      at += DirectReader::RoomFor(piece.bytes);
    }
    REQUIRE_OK((*reader)->Read(pieces));
    for (const FilePiece& piece : pieces) {
      const std::string& text = piece.file == 0 ? first : second;
      REQUIRE(std::memcmp(piece.data(), text.data() + piece.offset,
                          static_cast<size_t>(piece.bytes)) == 0);
    }
  }
}

TEST_CASE("a file that is missing or has become shorter is named") {
  const TempFolder folder;
  REQUIRE(absl::IsNotFound(DirectReader::Open({folder.File("none")}, {}).status()));
  const std::string path = folder.Write("file", Pattern(20'000));
  for (const bool plain : {false, true}) {
    folder.Write("file", Pattern(20'000));
    const auto reader = DirectReader::Open({path}, {.plain = plain});
    REQUIRE_OK(reader);
    const Room memory(2 * DirectReader::RoomFor(10'000));
    const FilePiece pieces[] = {{0, 0, 10'000, memory.data()},
                                {0, 9'000, 10'000, memory.data() + DirectReader::RoomFor(10'000)}};
    REQUIRE_OK((*reader)->Read(pieces));
    std::filesystem::resize_file(path, 15'000);
    const absl::Status status = (*reader)->Read(pieces);
    REQUIRE(IsCorrupt(status));
    REQUIRE_THAT(std::string(status.message()), Catch::Contains(path) &&
                                                    Catch::Contains("byte 19000") &&
                                                    Catch::Contains("shorter"));
    // What is left can still be read.
    REQUIRE_OK((*reader)->Read({pieces, 1}));
  }
}

TEST_CASE("a ring that fails is left once its reads are done, and pread reads the rest") {
  const TempFolder folder;
  const std::string text = Pattern(100'000);
  constexpr int64_t kBytes = 5000;
  constexpr size_t kPieces = 16;
  const int64_t room = DirectReader::RoomFor(kBytes);
  const Room memory(static_cast<int64_t>(kPieces) * room);
  std::vector<FilePiece> pieces;
  for (size_t i = 0; i < kPieces; ++i) {
    const auto place = static_cast<int64_t>(i);
    pieces.push_back({.file = 0,
                      .offset = 6000 * place,
                      .bytes = kBytes,
                      .memory = memory.data() + place * room});
  }
  for (const bool shorter : {false, true}) {
    INFO((shorter ? "a file that ends early" : "a whole file"));
    const std::string path = folder.Write("file", text);
    FakeRing ring;
    fake_ring = &ring;
    const auto reader = DirectReader::Open({path}, {});
    REQUIRE_OK(reader);
    REQUIRE((*reader)->uses_ring());
    if (shorter) std::filesystem::resize_file(path, 20'000);
    const absl::Status status = (*reader)->Read(pieces);
    const unsigned reads = ring.reads;
    fake_ring = nullptr;
    REQUIRE(reads == kPieces / 2);
    REQUIRE(!(*reader)->uses_ring());
    if (shorter) {
      REQUIRE(IsCorrupt(status));
      continue;
    }
    REQUIRE_OK(status);
    for (const FilePiece& piece : pieces) {
      REQUIRE(std::memcmp(piece.data(), text.data() + piece.offset, kBytes) == 0);
    }
  }
}

TEST_CASE("available memory is the system's, or less where a control group limits it") {
  const TempFolder root;
  REQUIRE(!AvailableMemory(root.path()));
  std::filesystem::create_directories(root.File("proc"));
  std::filesystem::create_directories(root.File("sys/fs/cgroup"));
  root.Write("proc/meminfo", "MemTotal:  99 kB\nMemAvailable:    40 kB\nBuffers: 3 kB\n");
  REQUIRE(AvailableMemory(root.path()) == 40 * 1024);
  root.Write("sys/fs/cgroup/memory.max", "max\n");
  root.Write("sys/fs/cgroup/memory.current", "7000\n");
  REQUIRE(AvailableMemory(root.path()) == 40 * 1024);
  root.Write("sys/fs/cgroup/memory.max", "20000\n");
  REQUIRE(AvailableMemory(root.path()) == 13000);
  root.Write("sys/fs/cgroup/memory.stat", "anon 1\ninactive_file 500\nactive_file 1500\n");
  REQUIRE(AvailableMemory(root.path()) == 15000);
  REQUIRE(AvailableMemory() > 0);
  // What an integrated GPU's driver allocates is not the group's.
  REQUIRE(AvailableSystemMemory(root.path().c_str()) == 40 * 1024);
  REQUIRE(TotalMemory(root.path()) == 20000);
  REQUIRE(TotalSystemMemory(root.path().c_str()) == 99 * 1024);
}

}  // namespace
}  // namespace dsv4
