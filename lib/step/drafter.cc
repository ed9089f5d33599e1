// SPDX-License-Identifier: Apache-2.0
#include "lib/step/drafter.h"

#include <algorithm>

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

bool ChoosesOnDevice(const ModelRanks& model, absl::Span<StepRequest* const> requests) {
  if (!model.chains()) return false;
  return std::all_of(requests.begin(), requests.end(), [](const StepRequest* request) {
    return !request->step || request->step->drafts_wanted() == 0 ||
           request->step->LaterDraftQuestion(0).has_value();
  });
}

}  // namespace dsv4
