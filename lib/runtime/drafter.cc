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

}  // namespace dsv4
