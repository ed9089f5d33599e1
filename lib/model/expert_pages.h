// SPDX-License-Identifier: Apache-2.0
// On the CPU, where experts are read from mapped files: keeps those within the budget of host
// memory there, and has the system read the others in behind the gate that chooses them, all at
// once, before the kernels come to them. `Choose` by the thread that runs the passes; `traffic`
// from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lib/model/expert_mover.h"
#include "lib/model/expert_residency.h"

namespace dsv4 {

class ExpertPages {
 public:
  // `locks`: experts within the budget are locked in memory where the system allows it.
  // `use` is told of what passes choose.
  ExpertPages(const ResidencyPlan& plan, bool locks, ExpertUse* use)
      : plan_(plan),
        locks_(locks),
        use_(use),
        ranges_(static_cast<size_t>(plan.all())),
        chosen_(static_cast<size_t>(plan.experts)) {}

  // Whether the expert is within the budget.
  bool Stays(ExpertId id) const { return plan_.TierOf(id) == ExpertTier::kHost; }

  // A tensor of the expert in a mapped file, when it is loaded: locks it, or lets it leave memory.
  void Add(ExpertId id, const uint8_t* data, int64_t bytes);
  int64_t locked_bytes() const { return locked_bytes_; }

  // Behind the gate of a block: `experts`, -1 for none.
  void Choose(int32_t block, absl::Span<const int32_t> experts);

  // An expert beyond the budget counts as read from disk, though the system may still have it.
  ExpertTraffic traffic() const {
    return {.host_reads = host_reads_.load(),
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
  std::vector<bool> chosen_;                // of the block at hand
  int64_t locked_bytes_ = 0;
  std::atomic<int64_t> host_reads_{0}, disk_reads_{0}, disk_bytes_{0};
};

}  // namespace dsv4
