// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/e2e/bandwidth.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "benchmarks/clock.h"
#include "benchmarks/must.h"
#include "lib/io/direct_reader.h"

namespace dsv4 {

namespace {

// Bytes copied a second, after a first copy.
double CopyRate(Device& device, const Buffer& to, const Buffer& from, int64_t bytes) {
  constexpr int kCopies = 8;
  Must(device.Copy(to.data(), from.data(), bytes));
  Must(device.Synchronize());
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kCopies; ++i) Must(device.Copy(to.data(), from.data(), bytes));
  Must(device.Synchronize());
  return static_cast<double>(bytes * kCopies) / SecondsSince(start);
}

}  // namespace

double CopyBandwidth(Device& device) {
  constexpr int64_t kBytes = int64_t{1} << 30;
  const Buffer from = Must(device.Allocate(kBytes, "measuring copies"));
  const Buffer to = Must(device.Allocate(kBytes, "measuring copies"));
  return 2 * CopyRate(device, to, from, kBytes);
}

double LinkBandwidth(Device& device) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  const Buffer from = Must(device.AllocateHost(kBytes, "measuring the link"));
  const Buffer to = Must(device.Allocate(kBytes, "measuring the link"));
  std::memset(from.data(), 1, kBytes);
  return CopyRate(device, to, from, kBytes);
}

void WriteDiskFile(const std::string& path) {
  constexpr int64_t kBytes = int64_t{8} << 30, kPart = int64_t{16} << 20;
  if (std::filesystem::exists(path)) return;
  const Clock::time_point start = Clock::now();
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0600);
  auto* const part = static_cast<uint64_t*>(std::aligned_alloc(4096, kPart));
  uint64_t state = 1;
  for (int64_t i = 0; i < kPart / 8; ++i) part[i] = state = state * 6364136223846793005u + 1;
  for (int64_t done = 0; done < kBytes; done += kPart) {
    part[0] = static_cast<uint64_t>(done);
    if (file < 0 || write(file, part, kPart) != kPart) {
      std::fprintf(stderr, "bench_decode: cannot write %s\n", path.c_str());
      std::exit(1);
    }
  }
  fsync(file);
  close(file);
  std::free(part);
  std::printf("wrote %s: %.2f GB/s\n", path.c_str(), kBytes * 1e-9 / SecondsSince(start));
}

double DiskBandwidth(const std::string& path) {
  constexpr int64_t kPiece = int64_t{4} << 20, kPieces = 12, kRounds = 20;
  const auto reader = Must(DirectReader::Open({path}, {}));
  const int64_t room = DirectReader::RoomFor(kPiece);
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(4096, room * kPieces));
  const Clock::time_point start = Clock::now();
  for (int64_t round = 0; round < kRounds; ++round) {
    std::vector<FilePiece> pieces;
    for (int64_t i = 0; i < kPieces; ++i) {
      pieces.push_back({0, (round * kPieces + i) * 7 * kPiece, kPiece, memory + i * room});
    }
    Must(reader->Read(pieces));
  }
  std::free(memory);
  return 1.0 * kPiece * kPieces * kRounds / SecondsSince(start);
}

}  // namespace dsv4
