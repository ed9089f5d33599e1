// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/expert_pages.h"

#include <algorithm>

#include "lib/io/page_advice.h"

namespace dsv4 {

void ExpertPages::Add(ExpertId id, const uint8_t* data, int64_t bytes) {
  if (Stays(id)) {
    if (locks_ && LockPages(data, bytes)) locked_bytes_ += bytes;
    return;
  }
  AdviseUnneeded(data, bytes);
  ranges_[static_cast<size_t>(id.block * plan_.experts + id.expert)].push_back({data, bytes});
}

void ExpertPages::Choose(int32_t block, absl::Span<const int32_t> experts) {
  std::fill(chosen_.begin(), chosen_.end(), false);
  if (block == 0) use_->AddPasses(1);
  for (const int32_t expert : experts) {
    if (expert < 0 || chosen_[static_cast<size_t>(expert)]) continue;
    chosen_[static_cast<size_t>(expert)] = true;
    use_->Add(static_cast<size_t>(block * plan_.experts + expert), 1);
    if (Stays({block, expert})) {
      ++host_reads_;
      host_bytes_ += plan_.ExpertBytes(block);
      continue;
    }
    ++disk_reads_;
    for (const Range& range : ranges_[static_cast<size_t>(block * plan_.experts + expert)]) {
      AdviseWillNeed(range.data, range.bytes);
      disk_bytes_ += range.bytes;
    }
  }
}

}  // namespace dsv4
