// SPDX-License-Identifier: Apache-2.0
// For tools that make a launch take a thousand times as long, as compute-sanitizer's racecheck:
// they look at some launches of each kernel and shape alone. A CUDA test (cmake/Dsv4Target.cmake)
// links launch_marks.cc, which with DSV4_TEST_MARK = K/N in the environment puts them into NVTX's
// range "check", and says at the end how many they were. What a graph records is not counted, and
// replays are none.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>

#include "tests/support/share.h"

namespace dsv4::test {

struct LaunchShape {
  std::array<unsigned, 3> blocks{}, threads{};
  size_t shared_bytes = 0;  // dynamic ones
  auto operator<=>(const LaunchShape&) const = default;
};

// Which launches are marked: of each kernel and shape those numbered 1, 2, 4, 8, and so on, so that
// later ones have longer contexts. Of N processes of the same test each takes the shapes K of N.
class LaunchMarks {
 public:
  explicit LaunchMarks(Share share) : share_(share) {}

  // Called for each launch, in order: whether it is marked.
  bool Next(const void* kernel, const LaunchShape& shape) {
    ++launches_;
    if (ShareOf(shape, share_.of) != share_.number) return false;
    const bool marked = std::has_single_bit(++numbers_[{kernel, shape}]);
    if (marked) ++marked_;
    return marked;
  }

  // The same in each process, whatever the order of launches.
  static int ShareOf(const LaunchShape& shape, int shares) {
    uint64_t hash = shape.shared_bytes;
    for (const auto& numbers : {shape.blocks, shape.threads}) {
      for (const unsigned n : numbers) hash = (hash ^ n) * 0x9E3779B97F4A7C15u;
    }
    return static_cast<int>((hash >> 32) % static_cast<uint64_t>(shares));
  }

  int64_t launches() const { return launches_; }
  int64_t marked() const { return marked_; }
  int64_t kinds() const { return static_cast<int64_t>(numbers_.size()); }  // of this share

 private:
  struct Kind {
    const void* kernel;
    LaunchShape shape;
    auto operator<=>(const Kind&) const = default;
  };
  const Share share_;
  std::map<Kind, uint64_t> numbers_;  // of the last launch
  int64_t launches_ = 0, marked_ = 0;
};

// Launches of this process so far, on any thread, marked or not, also those that a graph records.
int64_t LaunchesSoFar();

}  // namespace dsv4::test
