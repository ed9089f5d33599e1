// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/drafter.h"

#include <algorithm>

#include "lib/runtime/timeline.h"

namespace dsv4 {

std::unique_ptr<Drafter> Drafter::Of(DrafterKind kind, const ModelConfig& config,
                                     ModelRanks* model) {
  switch (kind) {
    case DrafterKind::kMtp:
      return MakeMtpDrafter(model);
    case DrafterKind::kNgram:
      return MakeNgramDrafter();
    case DrafterKind::kDspark:
      return MakeDsparkDrafter(model, config.dspark, model->limits().positions);
    case DrafterKind::kNone:
      break;
  }
  return nullptr;
}

bool ChoosesOnDevice(const ModelRanks& model, absl::Span<const StepItem> items) {
  if (!model.chains()) return false;
  return std::all_of(items.begin(), items.end(), [](const StepItem& item) {
    return !item.in_step || item.timeline->drafts_wanted() == 0 ||
           item.timeline->LaterDraftQuestion(0).has_value();
  });
}

int32_t DraftSlots(DrafterKind kind, const ModelConfig& config, int32_t drafts) {
  if (drafts == 0 || kind == DrafterKind::kNone || kind == DrafterKind::kNgram) return 0;
  return kind == DrafterKind::kMtp ? drafts : static_cast<int32_t>(config.dspark.block_size);
}

int32_t MostDrafts(DrafterKind kind, const ModelConfig& config, int32_t limit) {
  if (kind != DrafterKind::kDspark) return limit;
  return std::min(limit, static_cast<int32_t>(config.dspark.block_size));
}

}  // namespace dsv4
