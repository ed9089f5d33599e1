// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/engine_facts.h"

#include <algorithm>

namespace dsv4 {

const DeviceBytes& EngineInfo::fullest() const {
  return *std::max_element(
      devices.begin(), devices.end(),
      [](const DeviceBytes& a, const DeviceBytes& b) { return a.total() < b.total(); });
}

int32_t EngineFacts::DraftSlots(int32_t drafts) const {
  const DrafterKind kind = info.drafter;
  if (drafts == 0 || kind == DrafterKind::kNone || kind == DrafterKind::kNgram) return 0;
  return kind == DrafterKind::kMtp ? drafts : static_cast<int32_t>(config.dspark.block_size);
}

int32_t EngineFacts::MostDrafts(int32_t limit) const {
  if (info.drafter != DrafterKind::kDspark) return limit;
  return std::min(limit, static_cast<int32_t>(config.dspark.block_size));
}

}  // namespace dsv4
