// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/measured_rates.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lib/base/contained.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/device/buffer.h"
#include "lib/device/stream.h"
#include "lib/io/direct_reader.h"
#include "lib/io/native_path.h"

namespace dsv4 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongest = 0.06;     // seconds of link and disk, but for one read
constexpr double kLongestHost = 0.1;  // seconds of host memory
constexpr int kHostSizes = 8;         // 1 to 128 MiB, which is more than most last-level caches
constexpr int64_t kUnitBytes = 128 << 10;  // of one thread at a time
constexpr int64_t kLinkBytes = int64_t{16} << 20;
constexpr int64_t kPieceBytes = int64_t{2} << 20;  // of a file
constexpr int kPieces = 8;                         // at once

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

uint64_t WordAt(const std::byte* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// Written out, because a loop that is not unrolled would be slower than memory.
uint64_t SumOf(const std::byte* from, int64_t bytes) {
  uint64_t a = 0, b = 0, c = 0, d = 0;
  for (const std::byte* const end = from + bytes; from != end; from += 64) {
    a += WordAt(from) + WordAt(from + 32);
    b += WordAt(from + 8) + WordAt(from + 40);
    c += WordAt(from + 16) + WordAt(from + 48);
    d += WordAt(from + 24) + WordAt(from + 56);
  }
  return a + b + c + d;
}

// Bytes per second.
std::optional<double> ReadHostMemory(CpuStream* stream, int64_t bytes) {
  const absl::StatusOr<Buffer> pages = Buffer::AllocateHost(bytes, "measuring host memory");
  if (!pages.ok()) return std::nullopt;
  const int64_t units = bytes / kUnitBytes;
  stream->ParallelFor(units, [&](int64_t unit, int) {
    std::memset(pages->data() + unit * kUnitBytes, 1, static_cast<size_t>(kUnitBytes));
  });
  std::atomic<uint64_t> sum = 0;
  int64_t passes = 0;
  const auto begin = Clock::now();
  do {
    stream->ParallelFor(units, [&](int64_t unit, int) {
      sum += SumOf(pages->data() + unit * kUnitBytes, kUnitBytes);
    });
    ++passes;
  } while (SecondsSince(begin) < kLongestHost);
  const double seconds = SecondsSince(begin);
  // The bytes are all 1.
  constexpr uint64_t kOnes = 0x0101010101010101;
  if (sum != kOnes * static_cast<uint64_t>(passes * bytes / 8)) return std::nullopt;
  return static_cast<double>(passes * bytes) / seconds;
}

// Reads as much as a token, so that what fits a cache is read from there, too. Later engines of the
// process open without it.
std::optional<double> KnownHostMemory(CpuStream* stream, int64_t token_bytes) {
  static Mutex mutex;
  struct Known {
    bool tried = false;
    std::optional<double> rate{};
  };
  static std::array<std::array<Known, kHostSizes>, kMaxCpuThreads + 1> known;
  size_t size = 0;
  while (size + 1 < kHostSizes && (int64_t{1} << (20 + size)) < token_bytes) ++size;
  const auto threads = static_cast<size_t>(std::min(stream->threads(), kMaxCpuThreads));
  const MutexLock lock(&mutex);
  Known& memory = known[threads][size];
  if (!memory.tried) {
    memory.tried = true;
    memory.rate = ReadHostMemory(stream, int64_t{1} << (20 + size));
  }
  return memory.rate;
}

absl::StatusOr<double> LinkRate(Device* device) {
  const DeviceScope scope(device);
  DSV4_ASSIGN_OR_RETURN(const Buffer host, device->AllocateHost(kLinkBytes, "measuring the link"));
  DSV4_ASSIGN_OR_RETURN(const Buffer memory, device->Allocate(kLinkBytes, "measuring the link"));
  double seconds = 0;
  int64_t bytes = 0;
  // The first copy warms up.
  for (int copy = 0; copy < 6 && seconds < kLongest; ++copy) {
    const auto begin = Clock::now();
    DSV4_RETURN_IF_ERROR(device->Copy(memory.data(), host.data(), kLinkBytes));
    DSV4_RETURN_IF_ERROR(device->Synchronize());
    if (copy == 0) continue;
    seconds += SecondsSince(begin);
    bytes += kLinkBytes;
  }
  return static_cast<double>(bytes) / seconds;
}

// The rate of reads from the largest file, at places that are spread over it.
absl::StatusOr<double> DiskRate(const std::vector<std::string>& files) {
  std::string largest;
  int64_t size = 0;
  for (const std::string& file : files) {
    const int64_t bytes = FileBytes(file);
    if (bytes <= size) continue;
    size = bytes;
    largest = file;
  }
  const int64_t places = size / kPieceBytes;
  if (places < 2 * kPieces) return absl::NotFoundError("no large file");
  DSV4_ASSIGN_OR_RETURN(const auto reader, DirectReader::Open({largest}, {}));
  const int64_t room = DirectReader::RoomFor(kPieceBytes);
  DSV4_ASSIGN_OR_RETURN(const Buffer memory,
                        Buffer::AllocateHost(kPieces * room, "measuring the disk"));
  int64_t bytes = 0, place = 0;
  const auto begin = Clock::now();
  do {
    std::array<FilePiece, kPieces> pieces;
    for (int i = 0; i < kPieces; ++i) {
      // Steps of 61 pieces: no two are neighbours, so that reading ahead does not help.
      place = (place + 61) % places;
      pieces[static_cast<size_t>(i)] = {
          .offset = place * kPieceBytes, .bytes = kPieceBytes, .memory = memory.data() + i * room};
    }
    DSV4_RETURN_IF_ERROR(reader->Read(pieces));
    bytes += kPieces * kPieceBytes;
  } while (SecondsSince(begin) < kLongest);
  return static_cast<double>(bytes) / SecondsSince(begin);
}

std::optional<double> ValueOf(absl::FunctionRef<absl::StatusOr<double>()> measure) {
  std::optional<double> value;
  Contained([&]() -> absl::Status {
    DSV4_ASSIGN_OR_RETURN(value, measure());
    return absl::OkStatus();
  }).IgnoreError();
  return value;
}

}  // namespace

MeasuredRates MeasureRates(const EngineInfo& info, const TokenWork& work, Device* device,
                           const std::vector<std::string>& files) {
  MeasuredRates measured;
  if (info.backend == Backend::kCpu) {
    measured.memory = KnownHostMemory(static_cast<CpuStream*>(&device->stream()),
                                      static_cast<int64_t>(work.dense_bytes + work.expert_bytes));
  } else if (info.backend == Backend::kCuda && info.residency.on_host > 0 &&
             !device->integrated()) {
    measured.link = ValueOf([&] { return LinkRate(device); });
  }
  if (info.residency.on_disk > 0) measured.disk = ValueOf([&] { return DiskRate(files); });
  return measured;
}

DeviceRates WithMeasured(DeviceRates rates, Backend backend, const MeasuredRates& measured) {
  // The table's is what the threads can compute with.
  if (measured.memory) rates.memory = std::min(rates.memory, *measured.memory);
  if (backend == Backend::kCpu) rates.host = rates.memory;
  if (measured.link) rates.host = *measured.link;
  if (measured.disk) rates.disk = *measured.disk;
  return rates;
}

std::string TextOf(const MeasuredRates& measured) {
  std::string text;
  const auto add = [&](const char* what, const std::optional<double>& rate) {
    if (!rate) return;
    char number[32];
    std::snprintf(number, sizeof number, "%.1f", *rate / 1e9);
    absl::StrAppend(&text, text.empty() ? "rates measured at open: " : ", ", what, " ", number,
                    " GB/s");
  };
  add("host memory", measured.memory);
  add("link", measured.link);
  add("disk", measured.disk);
  return text;
}

}  // namespace dsv4
