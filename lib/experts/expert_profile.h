// SPDX-License-Identifier: Apache-2.0
// Counts how often passes chose each routed expert of a checkpoint, and the file of these counts.
// An engine begins with the most chosen experts in its fastest memory. Files are untrusted input.
//
// Version 1, little-endian:
//   0    "DSV4EXPR"
//   8    u32 version, u32 bytes of this header (64)
//   16   the checkpoint's fingerprint, 16 bytes
//   32   u64 passes
//   40   i64 blocks, i64 experts of a block
//   56   u64 zero
//   64   calls [u64], of one block after the other
//   end - 16  XXH3 (128 bits) of everything before
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/experts/expert_residency.h"
#include "lib/io/content_hash.h"

namespace dsv4 {

struct ExpertProfile {
  int64_t blocks = 0, experts = 0;
  uint64_t passes = 0;
  std::vector<uint64_t> calls;  // [blocks * experts]: passes that chose the expert
  bool operator==(const ExpertProfile&) const = default;
};

// Errors; each names the file:
// - NotFound: there is no file.
// - Corrupt: it is damaged.
// - VersionMismatch: another format, or the profile of another checkpoint.
absl::StatusOr<ExpertProfile> ReadExpertProfile(const std::string& path,
                                                const ContentHash& checkpoint);
// Replaces the file atomically. Errors: ReplacedFile's.
absl::Status WriteExpertProfile(const std::string& path, const ContentHash& checkpoint,
                                const ExpertProfile& profile);

// For ResidencyPlan::places: of each class of slots the most chosen experts come first; experts
// that were never chosen follow in the order of a plan without a profile. Each class keeps its
// places, so that the plan's bytes stay the same.
std::vector<int64_t> PlacesByUse(const ResidencyPlan& plan, const ExpertProfile& profile);

// Counts an engine's passes in addition to a profile. Threads: one for Add and AddPasses, any for
// Total.
class ExpertUse {
 public:
  // `before` is empty, or has the same numbers of blocks and experts.
  ExpertUse(int64_t blocks, int64_t experts, ExpertProfile before);

  void Add(size_t index, uint64_t calls) { calls_[index].fetch_add(calls); }
  void AddPasses(uint64_t passes) { passes_.fetch_add(passes); }
  // The share of earlier passes that chose the expert; 0 without any.
  float ShareBefore(size_t index) const;
  // In a long history, older passes weigh less.
  ExpertProfile Total() const;

 private:
  const ExpertProfile before_;
  std::vector<std::atomic<uint64_t>> calls_;
  std::atomic<uint64_t> passes_{0};
};

}  // namespace dsv4
