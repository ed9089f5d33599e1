// SPDX-License-Identifier: Apache-2.0
#include "lib/model/draft_blocks.h"

namespace dsv4 {

std::unique_ptr<DraftBlocks> DraftBlocks::Of(const Parts& parts) {
  return parts.weights->drafter->kind == DrafterKind::kMtp ? MakeMtpBlock(parts)
                                                           : MakeDsparkStages(parts);
}

}  // namespace dsv4
