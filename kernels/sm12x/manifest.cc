// SPDX-License-Identifier: Apache-2.0
#include "kernels/sm12x/manifest.h"

#include "kernels/sm12x/entries.h"

namespace dsv4 {

Manifest Sm12xManifest() {
  static const KernelEntry entries[] = {
      kSm12xEmbedRows,   kSm12xHcPre,          kSm12xHcPost,          kSm12xHcHead,
      kSm12xMtpCombine,  kSm12xRmsNorm,        kSm12xRopeTable,       kSm12xQkvPrepare,
      kSm12xCompressKv,  kSm12xIndexScoreTopk, kSm12xSparseAttention, kSm12xCopyRows,
      kSm12xPackWeight,  kSm12xLinearFp8,      kSm12xLinearBf16,      kSm12xOutputGroups,
      kSm12xMoeGate,     kSm12xExpertFfn,      kSm12xTokenCandidates, kSm12xGatherColumns,
      kSm12xDraftLogits,
  };
  return entries;
}

}  // namespace dsv4
