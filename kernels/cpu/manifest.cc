// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/manifest.h"

#include "kernels/cpu/entries.h"

namespace dsv4 {

Manifest CpuManifest() {
  static const KernelEntry entries[] = {
      kCpuLinearFp8,       kCpuLinearBf16, kCpuOutputGroups, kCpuMoeGate,    kCpuExpertFfn,
      kCpuRopeTable,       kCpuEmbedRows,  kCpuHcPre,        kCpuHcPost,     kCpuHcHead,
      kCpuMtpCombine,      kCpuRmsNorm,    kCpuQkvPrepare,   kCpuCompressKv, kCpuIndexScoreTopk,
      kCpuSparseAttention, kCpuCopyRows,   kCpuDraftLogits,
  };
  return {entries};
}

}  // namespace dsv4
