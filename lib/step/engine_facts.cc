// SPDX-License-Identifier: Apache-2.0
#include "lib/step/engine_facts.h"

#include <algorithm>

namespace dsv4 {

const char* CanaryStateName(CanaryState state) {
  switch (state) {
    case CanaryState::kNone:
      return "none";
    case CanaryState::kPassed:
      return "passed";
    case CanaryState::kFailed:
      return "failed";
    case CanaryState::kNotRun:
      return "not_run";
  }
  return "unknown";
}

const DeviceBytes& EngineInfo::fullest() const {
  return *std::max_element(
      devices.begin(), devices.end(),
      [](const DeviceBytes& a, const DeviceBytes& b) { return a.total() < b.total(); });
}

int32_t EngineFacts::DraftSlots(int32_t drafts) const {
  if (drafts == 0 || !plans_drafter()) return 0;
  return info.drafter == DrafterKind::kMtp ? drafts
                                           : static_cast<int32_t>(config.dspark.block_size);
}

int32_t EngineFacts::MostDrafts(int32_t limit) const {
  if (info.drafter != DrafterKind::kDspark) return limit;
  return std::min(limit, static_cast<int32_t>(config.dspark.block_size));
}

}  // namespace dsv4
