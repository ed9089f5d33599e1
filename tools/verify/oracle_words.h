// SPDX-License-Identifier: Apache-2.0
// The random words behind every tensor and prompt of an oracle case (tests/oracle/README.md).
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace dsv4 {

// Word i of `name` under `seed`, i from 0: splitmix64's finaliser over a counter.
class OracleWords {
 public:
  OracleWords(uint64_t seed, absl::string_view name) {
    uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
    for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
    base_ = hash ^ (seed * kGolden);
  }

  uint64_t operator[](int64_t i) const {
    uint64_t z = base_ + (static_cast<uint64_t>(i) + 1) * kGolden;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

 private:
  static constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
  uint64_t base_;
};

}  // namespace dsv4
