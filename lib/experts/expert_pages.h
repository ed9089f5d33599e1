// SPDX-License-Identifier: Apache-2.0
// Pages of experts that the CPU reads from mapped files. Keeps the experts within the budget in
// host memory. For the others, asks the system after each gate to read all chosen ones at once,
// before the kernels use them.
//
// Threads: the thread that runs the passes for `Choose`; any for `traffic`.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/experts/expert_profile.h"
#include "lib/experts/expert_residency.h"

namespace dsv4 {

class ExpertPages {
 public:
  // `locks`: lock experts within the budget in memory, if the system allows it.
  // `use` counts the experts that passes choose.
  ExpertPages(const ResidencyPlan& plan, bool locks, ExpertUse* use)
      : plan_(plan),
        locks_(locks),
        use_(use),
        ranges_(static_cast<size_t>(plan.all())),
        chosen_(static_cast<size_t>(plan.experts)) {}

  // Whether the expert is within the budget.
  bool Stays(ExpertId id) const { return plan_.TierOf(id) == ExpertTier::kHost; }

  // Called with each tensor of the expert in a mapped file at load: locks it, or lets the system
  // evict it.
  void Add(ExpertId id, const uint8_t* data, int64_t bytes);
  int64_t locked_bytes() const { return locked_bytes_; }

  // Called after the gate of a block with the chosen experts; -1: none.
  void Choose(int32_t block, absl::Span<const int32_t> experts);

  // Counts every read of an expert beyond the budget as a disk read, though the page cache may have
  // it.
  ExpertTraffic traffic() const {
    return {.host_reads = host_reads_.load(),
            .host_bytes = host_bytes_.load(),
            .disk_reads = disk_reads_.load(),
            .disk_bytes = disk_bytes_.load()};
  }

 private:
  struct Range {
    const uint8_t* data;
    int64_t bytes;
  };

  const ResidencyPlan plan_;
  const bool locks_;
  ExpertUse* const use_;
  std::vector<std::vector<Range>> ranges_;  // of experts beyond the budget
  std::vector<bool> chosen_;                // of the current block
  int64_t locked_bytes_ = 0;
  std::atomic<int64_t> host_reads_{0}, host_bytes_{0}, disk_reads_{0}, disk_bytes_{0};
};

}  // namespace dsv4
